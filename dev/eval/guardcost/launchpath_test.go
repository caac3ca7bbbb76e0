package guardcost

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aclements/go-moremath/stats"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
)

// launchPath is a runtime whose driver calls are counted, with one stream on
// which quarantine is compared and another one that launches meanwhile.
type launchPath struct {
	*testing.T
	rt             *fencepost.Runtime
	calls          *drivertest.Faults
	checked, other *cuda.Lease
	uses           []core.Use
}

const pieces = 16 // of quarantine

func newLaunchPath(t *testing.T, device driver.Driver, quarantine uint64) *launchPath {
	t.Helper()
	p := &launchPath{T: t, calls: drivertest.NewFaults(device)}
	p.rt = opened(t, fencepost.Config{Driver: p.calls, Guard: "hunt", TimeOneIn: -1,
		GuardConfig: debugguard.Config{QuarantineBytes: 2 * quarantine, QuarantineAge: -1},
		Async:       cuda.AsyncConfig{ReapInterval: -1}})
	for _, l := range []**cuda.Lease{&p.checked, &p.other} {
		var err error
		*l, err = p.rt.Streams().Acquire(ctx, "path")
		must(t, err)
		t.Cleanup(func() { must(t, (*l).Release()) })
	}
	b := p.alloc(p.other, 4096)
	p.uses = []core.Use{{Block: b, Access: core.Write}}
	t.Cleanup(func() {
		_, err := p.rt.Deallocate(ctx, b)
		must(t, err)
	})
	return p
}

func (p *launchPath) alloc(on *cuda.Lease, bytes uint64) core.BlockID {
	p.Helper()
	b, err := p.rt.Allocate(ctx, core.Request{Bytes: bytes, Stream: on.ID(), Tag: "path"})
	must(p, err)
	return b.ID
}

// fill puts so many bytes into quarantine.
func (p *launchPath) fill(bytes uint64) {
	p.Helper()
	var ids []core.BlockID
	for range pieces {
		ids = append(ids, p.alloc(p.checked, bytes/pieces))
	}
	for _, id := range ids {
		_, err := p.rt.Deallocate(ctx, id)
		must(p, err)
	}
	if q := p.rt.Guard().GuardStats().Quarantine; q.Requested < bytes {
		p.Fatalf("quarantine holds %d of %d bytes", q.Requested, bytes)
	}
}

// launch fences a launch of nothing, so that what it costs is the runtime's.
func (p *launchPath) launch() {
	must(p, p.rt.Launch(ctx, p.other.ID(), p.uses, func(context.Context) error { return nil }))
}

// counted lists the driver calls during f.
func (p *launchPath) counted(f func()) string {
	before := map[drivertest.Method]uint64{}
	for _, m := range drivertest.Methods() {
		before[m] = p.calls.Calls(m)
	}
	f()
	var made []string
	for _, m := range drivertest.Methods() {
		if n := p.calls.Calls(m) - before[m]; n > 0 {
			made = append(made, fmt.Sprintf("%v %d", m, n))
		}
	}
	return strings.Join(made, ", ")
}

const launched = 100

func (p *launchPath) launches() {
	for range launched {
		p.launch()
	}
}

// A comparison of the whole quarantine is under way on one stream and cannot
// end. The other one launches, allocates and frees as if there were none: the same
// calls, and no look at the verdict.
func TestAVerificationUnderWayCostsALaunchNothing(t *testing.T) {
	device, err := sim.Open(sim.Config{})
	must(t, err)
	t.Cleanup(func() { must(t, device.Close()) })
	p := newLaunchPath(t, device, 16<<20)
	p.launches() // makes its events
	const want = "EventRecord 100"
	if got := p.counted(p.launches); got != want {
		t.Fatalf("with nothing under way %d launches made the calls %q, want %q", launched, got, want)
	}
	p.fill(16 << 20)
	release, err := device.Hold(p.checked.Handle())
	must(t, err)
	defer release()
	if got := p.counted(func() { must(t, p.rt.Guard().Flush(ctx)) }); !strings.Contains(got, "Launch 1") {
		t.Fatalf("the flush made the calls %q: no comparison was launched", got)
	}
	verified := p.rt.Guard().GuardStats().Verified
	if got := p.counted(p.launches); got != want {
		t.Errorf("beside a comparison under way %d launches made the calls %q, want %q", launched, got, want)
	}
	if g := p.rt.Guard().GuardStats(); g.Checks == 0 || g.Verified != verified {
		t.Errorf("the comparison was not under way: %+v", g)
	}
	if got := p.counted(func() { p.allocAndFree() }); strings.Contains(got, "EventQuery") {
		t.Errorf("an allocation and a free made the calls %q: they look at the verdict", got)
	}
	release()
	must(t, p.rt.Drain(ctx))
	if g := p.rt.Guard().GuardStats(); g.Checks != 0 || g.Verified < verified+pieces || g.Findings != 0 {
		t.Errorf("after the comparison: %+v", g)
	}
}

func (p *launchPath) allocAndFree() {
	_, err := p.rt.Deallocate(ctx, p.alloc(p.other, 4096))
	must(p, err)
}

// timed returns what each of some launches took the host.
func (p *launchPath) timed(n int) []float64 {
	var took []float64
	for range n {
		began := time.Now()
		p.launch()
		took = append(took, float64(time.Since(began).Nanoseconds()))
	}
	return took
}

// report demands that launches make the same driver calls with and without a
// comparison of so many bytes under way on another stream, and prints what
// they take the host.
func (p *launchPath) report(bytes uint64, rounds, n int) {
	p.Helper()
	var idle, beside stats.Sample
	busy := 0
	p.launches() // makes its events
	for range rounds {
		must(p, p.rt.Drain(ctx))
		alone := p.counted(func() { idle.Xs = append(idle.Xs, p.timed(n)...) })
		p.fill(bytes)
		must(p, p.rt.Driver().Synchronize())
		must(p, p.rt.Guard().Flush(ctx))
		if got := p.counted(func() { beside.Xs = append(beside.Xs, p.timed(n)...) }); got != alone {
			p.Errorf("beside a comparison %d launches made the calls %q, and alone %q", n, got, alone)
		}
		if done, err := p.rt.Driver().StreamQuery(p.checked.Handle()); err == nil && !done {
			busy++
		}
	}
	must(p, p.rt.Drain(ctx))
	if g := p.rt.Guard().GuardStats(); g.Verified < uint64(pieces*rounds) || g.Findings != 0 {
		p.Errorf("not every block was compared behind quarantine: %+v", g)
	}
	p.Logf("fencing a launch takes the host, with nothing under way, %.0f ns (p90 %.0f), and with a comparison of %d MiB under way on another stream %.0f ns (p90 %.0f); %d launches each; in %d of %d rounds the comparison was still running behind the last of %d",
		idle.Quantile(.5), idle.Quantile(.9), bytes>>20, beside.Quantile(.5), beside.Quantile(.9), len(idle.Xs), busy, rounds, n)
}

func TestLaunchesMakeTheSameCallsBesideEveryVerification(t *testing.T) {
	device, err := sim.Open(sim.Config{})
	must(t, err)
	t.Cleanup(func() { must(t, device.Close()) })
	newLaunchPath(t, device, 16<<20).report(16<<20, 2, 10)
}
