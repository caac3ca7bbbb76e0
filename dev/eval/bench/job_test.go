package bench

import (
	"context"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
)

// BenchmarkJob is Do over a driver that does nothing, alone, with an allocation and a launch, and that with a reservation of a
// fixed size and of what was learned.
func BenchmarkJob(b *testing.B) {
	ctx := context.Background()
	rt, err := fencepost.Open(ctx, fencepost.Config{Driver: &drivertest.Null{}, Guard: "off", Budget: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _, _ = rt.Close(ctx) }()
	m, err := rt.Load("null", []byte("null"))
	if err != nil {
		b.Fatal(err)
	}
	kernel, err := m.Kernel("null")
	if err != nil {
		b.Fatal(err)
	}
	for name, work := range map[string]func(*fencepost.Job) error{
		"empty": func(*fencepost.Job) error { return nil },
		"launch": func(j *fencepost.Job) error {
			s, err := fencepost.Alloc[byte](j, 4096)
			if err != nil {
				return err
			}
			return j.Launch(kernel, cuda.Blocks1D(256, 256), fencepost.Writes(s))
		},
	} {
		for as, options := range map[string][]fencepost.JobOption{"plain": nil, "reserved": {fencepost.Reserve(4096, time.Minute)}, "admitted": {fencepost.Admit(), fencepost.Shape("bytes", 4096)}} {
			b.Run(name+"/"+as, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := rt.Do(ctx, "bench", work, options...); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
