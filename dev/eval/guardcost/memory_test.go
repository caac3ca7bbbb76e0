package guardcost

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/workload"
	"github.com/fencepost-gpu/fencepost/traces"
)

// hostCounter counts page-locked memory.
type hostCounter struct {
	driver.Driver
	now, peak atomic.Int64
}

func (h *hostCounter) Unwrap() driver.Driver { return h.Driver }

func (h *hostCounter) HostAlloc(bytes uint64) (driver.HostMemory, error) {
	m, err := h.Driver.HostAlloc(bytes)
	if err == nil {
		n := h.now.Add(int64(len(m.Bytes)))
		for old := h.peak.Load(); n > old && !h.peak.CompareAndSwap(old, n); old = h.peak.Load() {
		}
	}
	return m, err
}

func (h *hostCounter) HostFree(m driver.HostMemory) error {
	err := h.Driver.HostFree(m)
	if err == nil {
		h.now.Add(-int64(len(m.Bytes)))
	}
	return err
}

// peaks are the most bytes held at once, by the driver's books.
type peaks struct{ used, reserved, host uint64 }

// load is a program whose memory is measured.
type load struct {
	name string
	run  func(t *testing.T, rt *fencepost.Runtime)
}

// loads are the recorded traces, each alone, and the demo's work.
func loads(iterations, rows int) []load {
	var all []load
	for _, name := range traces.Names() {
		all = append(all, load{name, func(t *testing.T, rt *fencepost.Runtime) {
			r, err := newReplays(rt, name)
			must(t, err)
			must(t, r.Run(ctx, 1))
			must(t, r.Check())
		}})
	}
	return append(all, load{"sort+join", func(t *testing.T, rt *fencepost.Runtime) {
		w, err := workload.New(
			workload.Env{Driver: rt.Driver(), Runtime: rt.Core(), Streams: rt.Streams(), Memory: rt.Memory()},
			workload.Config{Goroutines: 8, Iterations: iterations, Rounds: 1, Rows: rows, Seed: 1})
		must(t, err)
		result, err := w.Run(context.Background())
		if must(t, err); result.Wrong > 0 || result.Refused > 0 {
			t.Fatalf("%+v", result)
		}
	}})
}

// measured runs a load on a runtime of its own over the driver's pool, which is therefore new and whose peaks are exact.
func measured(t *testing.T, device driver.Driver, guard string, l load) (p peaks) {
	t.Helper()
	counter := &hostCounter{Driver: device}
	rt, err := fencepost.Open(ctx, fencepost.Config{Driver: counter, Resource: fencepost.Async, Guard: fencepost.GuardMode(guard), Streams: streams})
	must(t, err)
	l.run(t, rt)
	must(t, rt.Drain(ctx))
	pool, err := rt.PoolStats()
	must(t, err)
	p.reserved, p.used = pool.ReservedHigh, pool.UsedHigh
	p.host = uint64(counter.peak.Load())
	if n := rt.Findings().Total(); n > 0 {
		t.Errorf("%s under %s: %v", l.name, guard, rt.Findings().Recent())
	}
	left, err := rt.Close(ctx)
	if must(t, err); len(left.Leaks) > 0 || counter.now.Load() != 0 {
		t.Errorf("%s under %s: %d blocks and %d bytes of host memory are left", l.name, guard, len(left.Leaks), counter.now.Load())
	}
	return p
}

// The guard as it is by default may take this share of the device's memory.
const memoryShare = 0.005

// compareMemory prints what the default guard adds to each load's peaks, and
// demands that what it allocates stays below the share. What the pool reserves
// for it besides is the allocator's choice, and only printed.
func compareMemory(t *testing.T, device driver.Driver, all []load) {
	t.Helper()
	props, err := device.Properties()
	must(t, err)
	const mib = 1 << 20
	table := []string{fmt.Sprintf("%-10s %12s %12s %12s %8s %12s %8s %12s", "load", "used, off", "used, sample", "more", "share", "reserved, +", "share", "page-locked")}
	for _, l := range all {
		off, on := measured(t, device, "off", l), measured(t, device, "sample", l)
		more, reserved := float64(on.used)-float64(off.used), float64(on.reserved)-float64(off.reserved)
		share := max(0, more) / float64(props.TotalBytes)
		table = append(table, fmt.Sprintf("%-10s %9.1f MiB %9.1f MiB %8.1f MiB %7.3f%% %8.1f MiB %7.3f%% %8.2f MiB", l.name,
			float64(off.used)/mib, float64(on.used)/mib, more/mib, 100*share, reserved/mib, 100*reserved/float64(props.TotalBytes), (float64(on.host)-float64(off.host))/mib))
		if off.used == 0 || share > memoryShare {
			t.Errorf("%s: the guard at its default took %.0f bytes of %d", l.name, more, props.TotalBytes)
		}
	}
	t.Logf("peaks of the driver's pool on %s (%.0f GiB), guard off and sample (the default):\n%s",
		props.Name, float64(props.TotalBytes)/(1<<30), strings.Join(table, "\n"))
}

func TestTheDefaultGuardTakesLittleMemory(t *testing.T) {
	device, err := sim.Open(sim.Config{})
	must(t, err)
	defer func() { must(t, device.Close()) }()
	compareMemory(t, device, loads(4, 1<<13))
}

// The measure must be able to fail: with every block guarded it sees the
// quarantine and the memory through which the device is asked.
func TestTheMeasureOfMemorySeesQuarantine(t *testing.T) {
	device, err := sim.Open(sim.Config{})
	must(t, err)
	defer func() { must(t, device.Close()) }()
	tables := loads(1, 512)[len(traces.Names())-1]
	off, on := measured(t, device, "off", tables), measured(t, device, "sample:1", tables)
	if on.used < off.used+debugguard.MinQuarantineBytes/2 || on.host == 0 {
		t.Errorf("guard off %+v, every block guarded %+v", off, on)
	}
}
