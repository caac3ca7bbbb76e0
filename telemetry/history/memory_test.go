//go:build !race

package history_test

import (
	"io"
	"runtime"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/history"
)

// An export of a ring of the default size takes some megabytes, most of which
// are the copy of the ring.
func TestAnExportOfAFullRingFitsItsMemory(t *testing.T) {
	source := full(t)
	n := len(source.Events())
	if n < 12_000 {
		t.Fatalf("the ring has %d records", n)
	}
	for _, format := range history.Formats() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		must.Do(t, source.Write(io.Discard, format))
		runtime.ReadMemStats(&after)
		took := after.TotalAlloc - before.TotalAlloc
		t.Logf("%s: %d records, %d KiB allocated in all", format, n, took>>10)
		if took > 64<<20 {
			t.Errorf("%s: %d bytes were allocated", format, took)
		}
	}
}
