package libcuda_test

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// BenchmarkRecord is one call on the fake, and with the context pushed.
func BenchmarkRecord(b *testing.B) {
	f := newFake(b)
	w := newBench(b, f, f.open())
	defer w.close()
	for _, c := range []struct {
		name   string
		stream driver.Stream
	}{{"bare", w.stream}, {"bound", 0}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = w.d.EventRecord(w.event, c.stream)
			}
		})
	}
}
