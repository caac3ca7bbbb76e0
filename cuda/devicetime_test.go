package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

// deviceWork is a sink that keeps what it is told.
type deviceWork struct {
	mu   sync.Mutex
	done []oplog.DeviceWork
	lost int
	// misbehaves, if not nil, is what the next call of Done does.
	misbehaves func()
}

func (d *deviceWork) Done(w *oplog.DeviceWork) {
	d.mu.Lock()
	if f := d.misbehaves; f != nil {
		d.misbehaves = nil
		d.mu.Unlock()
		f()
		return
	}
	defer d.mu.Unlock()
	kept := *w
	kept.Waits = slices.Clone(w.Waits)
	d.done = append(d.done, kept)
}

func (d *deviceWork) Lost(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost += n
}

func (d *deviceWork) of(name string) []oplog.DeviceWork {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(d.done), func(w oplog.DeviceWork) bool { return w.Name != name })
}

// sampled is req in a trace that is sampled.
func sampled(req core.UseRequest) core.UseRequest {
	req.Span = core.SpanContext{SpanRef: core.SpanRef{TraceID: [16]byte{1}, SpanID: [8]byte{2}}, Sampled: true}
	return req
}

// timedBench is a device of virtual time, whose kernels take as many microseconds as their argument says.
type timedBench struct {
	*testing.T
	sim      *sim.Device
	faults   *drivertest.Faults
	resource core.Resource
	streams  *cuda.StreamPool
	busy     driver.Function
	did      deviceWork
}

func newTimedBench(t *testing.T, seed uint64) *timedBench {
	return newTimedBenchOf(t, seed, 0, timedOneIn)
}

func newTimedBenchOf(t *testing.T, seed, limit uint64, oneIn int) *timedBench {
	device, err := sim.Open(sim.Config{Bytes: 64 << 20, Schedule: sim.Seeded(seed)})
	must(t, err)
	must(t, device.RegisterModule("busy", sim.Kernel{Name: "busy", Run: func(*sim.Exec) {},
		Takes: func(a sim.Args) time.Duration { return time.Duration(a.U64(0)) * time.Microsecond }}))
	b := &timedBench{T: t, sim: device, faults: drivertest.NewFaults(device)}
	m, err := device.ModuleLoad(driver.Image{Name: "busy"})
	must(t, err)
	b.busy, err = device.ModuleFunction(m, "busy")
	must(t, err)
	b.streams, err = cuda.NewStreamPool(b.faults, cuda.StreamPoolConfig{DeviceWork: &b.did, TimeOneIn: oneIn})
	must(t, err)
	pool, err := cuda.NewPoolResource(b.faults, b.streams, cuda.PoolConfig{ReapInterval: -1, Limit: limit})
	must(t, err)
	b.resource = pool
	t.Cleanup(func() {
		must(t, device.ModuleUnload(m))
		must(t, pool.Close(ctx))
		must(t, b.streams.Close(ctx))
		equal(t, "what is left on the device", device.Books(), sim.Books{})
		must(t, device.Close())
	})
	return b
}

// timedOneIn is of how many launches on a stream one is timed that is not sampled.
const timedOneIn = 10

func (b *timedBench) lease() *cuda.Lease {
	b.Helper()
	l, err := b.streams.Acquire(ctx, "timed")
	must(b, err)
	b.Cleanup(func() { must(b, l.Release()) })
	return l
}

func (b *timedBench) alloc(on *cuda.Lease, tag core.Tag) core.Block {
	b.Helper()
	block, err := b.resource.Allocate(ctx, core.Request{Bytes: 256, Stream: on.ID(), Tag: tag})
	must(b, err)
	b.Cleanup(func() {
		_, err := b.resource.Deallocate(ctx, block.ID)
		must(b, err)
	})
	return block
}

// launch enqueues a kernel of so many microseconds.
func (b *timedBench) launch(on *cuda.Lease, name string, us uint64, uses ...core.Use) {
	b.Helper()
	t, err := b.resource.PrepareUse(ctx, sampled(core.UseRequest{Stream: on.ID(), Launch: name, Uses: uses}))
	must(b, err)
	must(b, b.sim.Launch(&driver.Launch{Function: b.busy, Stream: on.Handle(), Args: []driver.Arg{driver.U64(us)}}))
	must(b, b.resource.FinishUse(ctx, t))
}

func (b *timedBench) reap() {
	b.Helper()
	must(b, b.sim.Synchronize())
	must(b, b.resource.ReapPending(ctx))
}

func reading(b core.Block) core.Use { return core.Use{Block: b.ID, Access: core.Read} }
func writing(b core.Block) core.Use { return core.Use{Block: b.ID, Access: core.Write} }

// About equal: a call takes the host a microsecond of virtual time, and a launch is a few.
const callsTake = 20 * time.Microsecond

// The device's part of a launch is from its real begin to its real end, and each wait has the time that it held the
// launch up: where two end together, the second none.
func TestALaunchKnowsWhatHeldItUp(t *testing.T) {
	for seed := range uint64(20) {
		b := newTimedBench(t, seed)
		one, two, three, idle := b.lease(), b.lease(), b.lease(), b.lease()
		postings, index := b.alloc(one, "index.postings"), b.alloc(two, "index.terms")
		b.launch(one, "merge", 11_000, writing(postings))
		b.launch(two, "sort", 4_000, writing(index))
		b.launch(three, "before", 3_000)
		b.launch(three, "query", 500, reading(index), reading(postings))
		b.launch(idle, "free", 700)
		b.reap()
		equal(t, "lost", b.did.lost, 0)
		for name, want := range map[string]time.Duration{"merge": 11 * time.Millisecond, "sort": 4 * time.Millisecond, "before": 3 * time.Millisecond, "query": 500 * time.Microsecond, "free": 700 * time.Microsecond} {
			did := b.did.of(name)
			if len(did) != 1 {
				t.Fatalf("%s was told of %d times", name, len(did))
			}
			near(t, name+" took", did[0].Ended.Sub(did[0].Began), want)
		}
		q := b.did.of("query")[0]
		near(t, "query stood behind its own stream", q.Reached.Sub(q.Prepared), 3*time.Millisecond)
		held := map[string]oplog.DeviceWait{}
		for _, w := range q.Waits {
			held[w.Launch] = w
		}
		merge, sort := held["merge"], held["sort"]
		near(t, "the waits held query up", merge.Held+sort.Held, 8*time.Millisecond)
		if merge.Held < 7*time.Millisecond-callsTake {
			t.Errorf("seed %d: merge, which ended last, held query up for %v, and sort for %v", seed, merge.Held, sort.Held)
		}
		equal(t, "what merge did", merge.Access, core.Write)
		equal(t, "the block", merge.Generation, postings.ID.Generation)
		equal(t, "its tag", merge.Tag, "index.postings")
		equal(t, "its stream", merge.Stream, one.ID())
		equal(t, "its number", merge.For.Launch, b.did.of("merge")[0].Launch)
		if !q.Began.After(b.did.of("merge")[0].Ended.Add(-time.Microsecond)) {
			t.Errorf("query began at %v, and merge ended at %v", q.Began, b.did.of("merge")[0].Ended)
		}
	}
}

func near(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if (got - want).Abs() > callsTake {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// Of more than four waits the others are not told apart, and their time is not lost.
func TestManyWaitsAreUnattributedTogether(t *testing.T) {
	b := newTimedBench(t, 1)
	var uses []core.Use
	last := b.lease()
	for i := range uint64(7) {
		s := b.lease()
		block := b.alloc(s, "part")
		b.launch(s, "part", 1000*(i+1), writing(block))
		uses = append(uses, reading(block))
	}
	b.launch(last, "all", 100, uses...)
	b.reap()
	all := b.did.of("all")[0]
	equal(t, "waits", len(all.Waits), 7)
	held := all.Unattributed
	for i, w := range all.Waits {
		if (w.Held < 0) != (i >= 4) {
			t.Errorf("wait %d held the launch up for %v", i, w.Held)
		}
		held += max(0, w.Held)
	}
	near(t, "all waits", held, 7*time.Millisecond)
	near(t, "the launch", all.Ended.Sub(all.Began), 100*time.Microsecond)
}

// sampling is a layer that samples all launches.
type sampling struct{ core.Resource }

func (s sampling) PrepareUse(ctx context.Context, req core.UseRequest) (core.Ticket, error) {
	return s.Resource.PrepareUse(ctx, sampled(req))
}

// A launch that ends behind Close is lost, and its events go back to the device, as the bench demands.
func TestALaunchThatEndsBehindCloseIsLost(t *testing.T) {
	b := newTimedBench(t, 1)
	s := b.lease()
	tk, err := b.resource.PrepareUse(ctx, sampled(core.UseRequest{Stream: s.ID(), Launch: "late"}))
	must(t, err)
	must(t, b.resource.(*cuda.PoolResource).Close(ctx))
	must(t, b.resource.FinishUse(ctx, tk))
	equal(t, "told", len(b.did.done), 0)
	equal(t, "lost", b.did.lost, 1)
}

// While the device does not come to the clock's record nothing is told, nor lost.
func TestABusyDeviceIsAskedAgain(t *testing.T) {
	b := newHeldBench(t)
	b.launch()
	b.letGo(time.Millisecond)
	b.silent = true
	must(t, b.pool.ReapPending(ctx))
	equal(t, "told and lost", len(b.did.done)+b.did.lost, 0)
	b.silent = false
	b.told()
}

// A graph is timed as one launch, from its first work to its last.
func TestAGraphIsTimedAsOneLaunch(t *testing.T) {
	b := newTimedBench(t, 1)
	s := b.lease()
	block := b.alloc(s, "x")
	rt, err := core.NewRuntime(sampling{b.resource}, nil)
	must(t, err)
	g, err := s.Capture(ctx, "graph", []core.Use{writing(block)}, func(h driver.Stream) error {
		l := &driver.Launch{Function: b.busy, Stream: h, Args: []driver.Arg{driver.U64(300)}}
		return errors.Join(b.sim.Launch(l), b.sim.Launch(l))
	})
	must(t, err)
	must(t, g.Launch(ctx, rt, s))
	b.reap()
	must(t, g.Close())
	if len(b.did.done) != 1 {
		t.Fatalf("told %d times", len(b.did.done))
	}
	near(t, "the graph took", b.did.done[0].Ended.Sub(b.did.done[0].Began), 600*time.Microsecond)
}

// Launches on many streams, which wait for each other, are timed while others reap and the resource is closed at last:
// each that is to be timed is told or lost, and its times are in order.
func TestTimedLaunchesHammer(t *testing.T) {
	device, err := sim.Open(sim.Config{Bytes: 64 << 20})
	must(t, err)
	var did deviceWork
	streams, err := cuda.NewStreamPool(device, cuda.StreamPoolConfig{DeviceWork: &did, TimeOneIn: timedOneIn})
	must(t, err)
	pool, err := cuda.NewPoolResource(device, streams, cuda.PoolConfig{ReapInterval: time.Millisecond})
	must(t, err)
	const goroutines = 6
	each := 40 * timedOneIn
	if testing.Short() {
		each = 8 * timedOneIn
	}
	var blocks []core.Block
	var leases []*cuda.Lease
	for range goroutines {
		l, err := streams.Acquire(ctx, "hammer")
		must(t, err)
		b, err := pool.Allocate(ctx, core.Request{Bytes: 256, Stream: l.ID()})
		must(t, err)
		leases, blocks = append(leases, l), append(blocks, b)
	}
	var work, reaps sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		reaps.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if err := pool.ReapPending(ctx); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	for g, l := range leases {
		work.Go(func() {
			for i := range each {
				req := core.UseRequest{Stream: l.ID(), Launch: "hammer", Wait: true, Uses: []core.Use{writing(blocks[g]), reading(blocks[(g+i)%goroutines])}}
				if i%2 == 0 {
					req = sampled(req)
				}
				tk, err := pool.PrepareUse(ctx, req)
				if err == nil {
					err = pool.FinishUse(ctx, tk)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	close(stop)
	reaps.Wait()
	for g, l := range leases {
		_, err := pool.Deallocate(ctx, blocks[g].ID)
		must(t, err)
		must(t, l.Release())
	}
	must(t, pool.Close(ctx))
	must(t, streams.Close(ctx))
	sampled := 0
	for _, w := range did.done {
		if !w.Span.IsZero() {
			sampled++
		}
	}
	if all := goroutines * each / 2; sampled > all || sampled+did.lost < all {
		t.Errorf("of %d sampled launches %d are told, and %d launches lost", all, sampled, did.lost)
	}
	for _, w := range did.done {
		if w.Began.Before(w.Reached) || w.Ended.Before(w.Began) {
			t.Fatalf("reached at %v, began at %v, ended at %v", w.Reached, w.Began, w.Ended)
		}
	}
	must(t, device.Close())
}

// A launch whose stream captures when it ends has no time: an event would become a part of the graph.
func TestALaunchThatMeetsACaptureIsNotTimed(t *testing.T) {
	b := newTimedBench(t, 1)
	handle, err := b.sim.StreamCreate()
	must(t, err)
	s, err := b.streams.Adopt(handle, "capturing")
	must(t, err)
	block := b.alloc(b.lease(), "x")
	tk, err := b.resource.PrepareUse(ctx, sampled(core.UseRequest{Stream: s.ID(), Launch: "captured", Uses: []core.Use{writing(block)}}))
	must(t, err)
	records := b.faults.Calls(drivertest.EventRecord)
	must(t, b.sim.StreamBeginCapture(handle))
	if err := b.resource.FinishUse(ctx, tk); !errors.Is(err, core.ErrStreamMisuse) {
		t.Errorf("the end of the launch in a capture: %v", err)
	}
	equal(t, "records in the capture", b.faults.Calls(drivertest.EventRecord), records)
	g, err := b.sim.StreamEndCapture(handle)
	must(t, err)
	must(t, b.sim.GraphDestroy(g))
	b.reap()
	equal(t, "told", len(b.did.done), 0)
	equal(t, "lost", b.did.lost, 1)
	must(t, s.Release())
	must(t, b.sim.StreamDestroy(handle))
}

// A sink that panics, ends its goroutine, or blocks loses no other launch, and keeps no other reap.
func TestASinkThatDoesNotReturnLosesNoOtherLaunch(t *testing.T) {
	released := make(chan struct{})
	for name, misbehaves := range map[string]func(){"panics": func() { panic("the sink's bug") }, "exits": runtime.Goexit,
		"blocks": func() { <-released }} {
		t.Run(name, func(t *testing.T) {
			b := newTimedBench(t, 1)
			s := b.lease()
			for range 3 {
				b.launch(s, "x", 1)
			}
			begun, ended := make(chan struct{}), make(chan struct{})
			b.did.misbehaves = func() { close(begun); misbehaves() }
			must(t, b.sim.Synchronize())
			go func() {
				defer close(ended)
				_ = b.resource.ReapPending(ctx)
			}()
			<-begun
			b.launch(s, "x", 1)
			b.reap()
			if name == "blocks" {
				close(released)
			}
			<-ended
			equal(t, "told", len(b.did.done), 3)
			equal(t, "lost", b.did.lost, 0)
		})
	}
}

// A launch that is not sampled, or was aborted, has no time, and only what was to be told and cannot be is lost.
func TestWhatIsNotTimed(t *testing.T) {
	b := newTimedBench(t, 1)
	s := b.lease()
	block := b.alloc(s, "x")
	events := b.faults.Calls(drivertest.TimingEventCreate)
	tk, err := b.resource.PrepareUse(ctx, core.UseRequest{Stream: s.ID(), Uses: []core.Use{writing(block)}}) // the first of many
	must(t, err)
	must(t, b.resource.FinishUse(ctx, tk))
	equal(t, "events with timing", b.faults.Calls(drivertest.TimingEventCreate), events)
	tk, err = b.resource.PrepareUse(ctx, sampled(core.UseRequest{Stream: s.ID(), Launch: "aborted", Uses: []core.Use{writing(block)}}))
	must(t, err)
	must(t, b.resource.AbortUse(ctx, tk))
	b.reap()
	equal(t, "told", len(b.did.done), 0)
	equal(t, "lost", b.did.lost, 0)
	equal(t, "drivers' calls for nothing", b.faults.Calls(drivertest.EventElapsed), 0)

	b.faults.FailMethod(drivertest.EventElapsed, 8, driver.Unknown) // the clock's first base needs seven
	b.launch(s, "failed", 10, writing(block))
	b.launch(s, "placed", 10, writing(block))
	b.reap()
	equal(t, "lost", b.did.lost, 1)
	equal(t, "told", len(b.did.of("placed")), 1)
	b.faults.FailMethod(drivertest.EventRecord, 1, driver.Unknown) // of an event that was recorded before
	b.launch(s, "unrecorded", 10, writing(block))
	b.reap()
	equal(t, "lost", b.did.lost, 2)
	equal(t, "told", len(b.did.of("unrecorded")), 0)
}

// Of the launches on a stream that are not sampled one in so many is timed, and stands for them: about as often whatever its
// place in a step that is repeated. Those that are sampled stand for themselves.
func TestOneInSoManyIsTimed(t *testing.T) {
	const steps = 1000
	b := newTimedBench(t, 1)
	one, two := b.lease(), b.lease()
	names := strings.Split("abcdefghij", "") // as many as timedOneIn
	for i := range steps {
		for _, name := range names {
			for _, s := range []*cuda.Lease{one, two} {
				tk, err := b.resource.PrepareUse(ctx, core.UseRequest{Stream: s.ID(), Launch: name})
				must(t, err)
				must(t, b.resource.FinishUse(ctx, tk))
			}
		}
		if i%7 == 0 {
			b.launch(one, "sampled", 1)
		}
		b.reap()
	}
	equal(t, "sampled launches that were timed", len(b.did.of("sampled")), (steps+6)/7)
	stand := map[string]uint64{}
	for _, w := range b.did.done {
		if w.Span.IsZero() != (w.Name != "sampled") || w.Weight != 1 && w.Name == "sampled" {
			t.Errorf("%s stands for %d launches, and has the span %v", w.Name, w.Weight, w.Span)
		}
		stand[w.Name] += w.Weight
	}
	for _, name := range names {
		if n := stand[name]; n < 2*steps*3/4 || n > 2*steps*5/4 {
			t.Errorf("%d launches named %s are told of %d", n, name, 2*steps)
		}
	}
}

// Launches that are open on a stream at once are chosen each for itself: not by what other streams, or those of another
// runtime, have counted.
func TestLaunchesAtOnceAreChosenEachForItself(t *testing.T) {
	const atOnce = 16
	for _, oneIn := range []int{1000, 0, 1} {
		b := newTimedBenchOf(t, 1, 0, oneIn)
		s := b.lease()
		var open []core.Ticket
		for range atOnce {
			tk, err := b.resource.PrepareUse(ctx, core.UseRequest{Stream: s.ID()})
			must(t, err)
			open = append(open, tk)
		}
		for _, tk := range open {
			must(t, b.resource.FinishUse(ctx, tk))
		}
		b.reap()
		if told := len(b.did.done); oneIn < 1000 && told != oneIn*atOnce {
			t.Errorf("%d of %d launches were timed, one in %d is to be", told, atOnce, oneIn)
		}
	}
}

// slow is a device whose work is done when a test says so.
type slow struct {
	*drivertest.Null
	now     time.Duration
	lags    driver.LaunchLags
	ahead   time.Duration // what the device's clock shows beyond the host's
	held    driver.Stream // its work is done when it is let go
	at      map[driver.Event]time.Duration
	pending map[driver.Event]bool
	calls   int
	silent  bool // it comes to no record
}

func (d *slow) HostTime() (time.Duration, bool) { return d.now, true }

func (d *slow) LaunchLags() driver.LaunchLags { return d.lags }

func (d *slow) EventRecord(e driver.Event, s driver.Stream) error {
	d.calls++
	d.at[e], d.pending[e] = d.now+d.ahead, d.held != 0 && s == d.held
	return nil
}

func (d *slow) EventQuery(e driver.Event) (bool, error) {
	d.calls++
	return !d.pending[e] && !d.silent, nil
}

func (d *slow) EventElapsed(from, to driver.Event) (time.Duration, error) {
	d.calls++
	if d.pending[from] || d.pending[to] {
		return 0, driver.NewError("EventElapsed", driver.NotReady)
	}
	return d.at[to] - d.at[from], nil
}

// letGo says that the held work was done now, or so much later.
func (d *slow) letGo(later time.Duration) {
	d.held = 0
	for e := range d.pending {
		if d.pending[e] {
			d.at[e], d.pending[e] = d.now+d.ahead+later, false
		}
	}
}

// heldBench is a resource over a slow device, with one stream.
type heldBench struct {
	*testing.T
	*slow
	pool *cuda.PoolResource
	on   *cuda.Lease
	did  deviceWork
}

func newHeldBench(t *testing.T) *heldBench {
	return newHeldBenchOf(t, driver.LaunchLags{Begin: 5 * time.Microsecond})
}

func newHeldBenchOf(t *testing.T, lags driver.LaunchLags) *heldBench {
	b := &heldBench{T: t, slow: &slow{Null: &drivertest.Null{}, now: time.Microsecond, lags: lags, at: map[driver.Event]time.Duration{}, pending: map[driver.Event]bool{}}}
	streams, err := cuda.NewStreamPool(b.slow, cuda.StreamPoolConfig{DeviceWork: &b.did})
	must(t, err)
	b.pool, err = cuda.NewPoolResource(b.slow, streams, cuda.PoolConfig{ReapInterval: -1})
	must(t, err)
	b.on, err = streams.Acquire(ctx, "x")
	must(t, err)
	t.Cleanup(func() {
		must(t, b.on.Release())
		must(t, b.pool.Close(ctx))
		must(t, streams.Close(ctx))
	})
	return b
}

// launch is one that is done when the device lets go.
func (b *heldBench) launch() {
	b.Helper()
	tk, err := b.pool.PrepareUse(ctx, sampled(core.UseRequest{Stream: b.on.ID(), Launch: "slow"}))
	must(b, err)
	b.held = b.on.Handle()
	must(b, b.pool.FinishUse(ctx, tk))
}

func (b *heldBench) told() oplog.DeviceWork {
	b.Helper()
	must(b, b.pool.ReapPending(ctx))
	if len(b.did.done) != 1 {
		b.Fatalf("told %d times, and %d are lost", len(b.did.done), b.did.lost)
	}
	return b.did.done[0]
}

// A launch that takes longer than the device's clock reaches is placed: its begin is looked for when the clock is
// new. When it is done no reap makes a call any more.
func TestALongLaunchIsPlaced(t *testing.T) {
	b := newHeldBench(t)
	b.launch()
	for b.now < 20*time.Second {
		b.now += 500 * time.Millisecond
		must(t, b.pool.ReapPending(ctx))
	}
	equal(t, "told", len(b.did.done), 0)
	b.letGo(0)
	w := b.told()
	near(t, "it took", w.Ended.Sub(w.Began), 20*time.Second)
	calls := b.calls
	must(t, b.pool.ReapPending(ctx))
	equal(t, "calls of an idle device", b.calls, calls)
}

// A kernel begins some time behind the event in front of it and the host's call, and ends before the event behind it. It does not
// begin behind its end, and no time goes back.
func TestAKernelIsBetweenTheEventsAroundIt(t *testing.T) {
	const us = time.Microsecond
	for _, c := range []struct {
		lags                driver.LaunchLags
		took, begins, takes time.Duration
	}{
		{driver.LaunchLags{Begin: 5 * us}, 1000 * us, 5 * us, 995 * us},
		{driver.LaunchLags{Begin: 5 * us}, 3 * us, 3 * us, 0},
		{driver.LaunchLags{Begin: 5 * us}, -us, 0, 0},
		{driver.LaunchLags{Begin: 5 * us, Call: 8 * us, End: 2 * us}, 1000 * us, 8 * us, 990 * us},
		{driver.LaunchLags{Begin: 5 * us, Call: 3 * us, End: 2 * us}, 1000 * us, 5 * us, 993 * us},
		{driver.LaunchLags{Begin: 5 * us, End: 2 * us}, 6 * us, 4 * us, 0},
		{driver.LaunchLags{Begin: 5 * us, End: 2 * us}, us, 0, 0},
	} {
		b := newHeldBenchOf(t, c.lags)
		b.launch()
		b.letGo(c.took)
		w := b.told()
		equal(t, "begin", w.Began.Sub(w.Reached), c.begins)
		equal(t, "end", w.Ended.Sub(w.Began), c.takes)
	}
}

// What was recorded before the clocks went apart cannot be placed.
func TestASleepOfTheMachineLosesWhatWasUnderWay(t *testing.T) {
	b := newHeldBench(t)
	b.launch()
	must(t, b.pool.ReapPending(ctx))
	b.now, b.ahead = b.now+3*time.Second, 2*time.Second
	b.letGo(0)
	must(t, b.pool.ReapPending(ctx))
	equal(t, "told", len(b.did.done), 0)
	equal(t, "lost", b.did.lost, 1)
}

// However much is under way, so many launches are timed at once.
func TestNotTooManyLaunchesAreTimedAtOnce(t *testing.T) {
	b := newHeldBench(t)
	const launches, most = 10_000, 1 << 13
	for range launches {
		b.launch()
	}
	equal(t, "lost", b.did.lost, launches-most)
	b.letGo(0)
	must(t, b.pool.ReapPending(ctx))
	equal(t, "told", len(b.did.done), most)
}

// Whichever two calls that device times need fail one after the other: when the driver works again
// each launch was told of or counted as lost.
func TestNoLaunchIsForgottenAfterAnyTwoFaults(t *testing.T) {
	methods := []drivertest.Method{drivertest.StreamCreate, drivertest.TimingEventCreate, drivertest.EventRecord,
		drivertest.EventQuery,
		drivertest.EventElapsed, drivertest.EventDestroy}
	for _, one := range methods {
		for _, other := range methods {
			for k := range uint64(18) {
				t.Run(fmt.Sprintf("%s %d %s", one, k, other), func(t *testing.T) {
					b := newTimedBench(t, 1)
					s := b.lease()
					launched := 0
					for i := range 6 {
						if i == int(k%2) { // before there is a clock, and after
							b.faults.FailMethod(one, 1+k/2, driver.OutOfMemory)
							b.faults.FailMethod(other, 1, driver.InvalidValue)
						}
						if i == 4 {
							b.faults.Clear()
						}
						tk, err := b.resource.PrepareUse(ctx, sampled(core.UseRequest{Stream: s.ID(), Launch: "x"}))
						if err == nil {
							launched++
							_ = b.resource.FinishUse(ctx, tk) // the driver's fault
						}
						must(t, b.sim.Synchronize())
						_ = b.resource.ReapPending(ctx)
					}
					b.reap()
					equal(t, "told and lost", len(b.did.done)+b.did.lost, launched)
				})
			}
		}
	}
}

// A lost device leaves nothing that each later reap would look at, and Close ends.
func TestALostDeviceLosesItsTimes(t *testing.T) {
	device, err := sim.Open(sim.Config{Bytes: 64 << 20})
	must(t, err)
	defer func() { must(t, device.Close()) }()
	var did deviceWork
	streams, err := cuda.NewStreamPool(device, cuda.StreamPoolConfig{DeviceWork: &did})
	must(t, err)
	pool, err := cuda.NewPoolResource(device, streams, cuda.PoolConfig{ReapInterval: -1})
	must(t, err)
	s, err := streams.Acquire(ctx, "x")
	must(t, err)
	tk, err := pool.PrepareUse(ctx, sampled(core.UseRequest{Stream: s.ID(), Launch: "lost"}))
	must(t, err)
	must(t, pool.FinishUse(ctx, tk))
	device.LoseContext(driver.IllegalAddress)
	if err := pool.ReapPending(ctx); err == nil {
		t.Error("a reap of a lost device tells nothing")
	}
	equal(t, "lost", did.lost, 1)
	_ = pool.Close(ctx)
	_ = s.Release()
	_ = streams.Close(ctx)
}

// An allocation that makes its stream wait for another's launch on the same memory is timed, in a sampled trace always. If
// the driver refuses an event that is counted, and the memory is had all the same.
func TestAReuseOfMemoryKnowsHowLongItWaited(t *testing.T) {
	b := newTimedBenchOf(t, 4, sim.Granule, timedOneIn)
	one, two := b.lease(), b.lease()
	streams := [2]*cuda.Lease{one, two}
	span := core.SpanRef{TraceID: [16]byte{3}, SpanID: [8]byte{4}}
	reuse := func(from int, span core.SpanRef, tag core.Tag, before func()) {
		on, other := streams[from], streams[1-from]
		whole, err := b.resource.Allocate(ctx, core.Request{Bytes: sim.Granule, Stream: on.ID(), Tag: "whole"})
		must(t, err)
		b.launch(on, "train", 5_000, writing(whole))
		_, err = b.resource.Deallocate(ctx, whole.ID)
		must(t, err)
		before()
		again, err := b.resource.Allocate(ctx, core.Request{Bytes: sim.Granule, Stream: other.ID(), Tag: tag, Span: span})
		must(t, err)
		_, err = b.resource.Deallocate(ctx, again.ID)
		must(t, err)
		b.reap()
	}
	none := func() {}
	reuse(0, span, "again", none)
	did := b.did.of("")
	equal(t, "reuses that were timed", len(did), 1)
	w := did[0]
	equal(t, "the launch, the span, the weight and the stream", w.Launch == 0 && w.Span == span && w.Weight == 1 && w.Stream == two.ID(), true)
	equal(t, "waits", len(w.Waits), 1)
	equal(t, "for", w.Waits[0].Launch, "train")
	equal(t, "the launch's number", w.Waits[0].For.Launch, b.did.of("train")[0].Launch)
	equal(t, "the tag, the stream and no access", w.Waits[0].Tag == "again" && w.Waits[0].Stream == one.ID() && w.Waits[0].Access == 0, true)
	equal(t, "it waited about 5 ms", (w.Waits[0].Held-5*time.Millisecond).Abs() < callsTake && w.Began.Equal(w.Ended), true)

	for i := range 40 * timedOneIn {
		reuse((1+i)%2, core.SpanRef{}, "unsampled", none)
	}
	did = b.did.of("")
	equal(t, "one reuse of many was timed", len(did) > 30 && len(did) < 50, true)
	equal(t, "the weight of another", did[1].Weight, timedOneIn)
	equal(t, "lost", b.did.lost, 0)

	for k := range uint64(3) { // behind the record that is waited for: before the wait, after it, and at the end
		reuse(1, span, "failed", func() { b.faults.FailMethod(drivertest.EventRecord, k+2, driver.Unknown) })
		equal(t, "lost", b.did.lost, int(k)+1)
		reuse(0, span, "as before", none)
	}
	equal(t, "reuses that were timed in the end", len(b.did.of("")), len(did)+3)
}
