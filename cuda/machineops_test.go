package cuda_test

import (
	"errors"
	"slices"

	"pgregory.net/rapid"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
)

func (m *machine) launch(r *rapid.T) {
	if l := m.prepare(r); l != nil {
		m.enqueue(l)
		m.finishOne(l)
	}
}

func (m *machine) prepareOnly(r *rapid.T) { m.prepare(r) }

// pick draws one of the open launches that keep holds for.
func (m *machine) pick(r *rapid.T, keep func(*openLaunch) bool) *openLaunch {
	open := slices.DeleteFunc(slices.Clone(m.open), func(l *openLaunch) bool { return !keep(l) })
	if len(open) == 0 {
		r.Skip("no such launch")
	}
	return pickOne(r, "launch", open)
}

func notEnqueued(l *openLaunch) bool { return !l.enqueued }

// enqueueOpen enqueues a prepared launch, unless a block of it has not been
// written by the one that it was to read.
func (m *machine) enqueueOpen(r *rapid.T) {
	l := m.pick(r, notEnqueued)
	for _, u := range l.uses {
		if u.access.Reads() && !u.block.written {
			r.Skip("nothing to read")
		}
	}
	m.enqueue(l)
}

func (m *machine) finish(r *rapid.T) {
	m.finishOne(m.pick(r, func(*openLaunch) bool { return true }))
}

func (m *machine) abort(r *rapid.T) {
	l := m.pick(r, notEnqueued)
	m.close(l, func() error { return m.stack.Runtime.AbortUse(ctx, l.ticket) }, "abort")
	m.want.Aborts++
}

// record does a read whose waits were not queued, in the legacy way. Its
// caller has to order it by other means, so everything is waited for first.
func (m *machine) record(r *rapid.T) {
	blocks := slices.DeleteFunc(m.live(), func(b *modelBlock) bool { return b.intents > 0 || !b.written })
	if len(blocks) == 0 {
		r.Skip("no block")
	}
	m.no(m.stack.Sim.Synchronize(), "synchronize")
	b, on := pickOne(r, "block", blocks), m.on(r)
	m.no(m.kernel.Enqueue(on.Handle(), grid, mixArgs(0, reads(b.Block))...), "enqueue")
	m.no(m.stack.Runtime.RecordBlockUse(ctx, b.ID, on.ID()), "record")
}

func (m *machine) lease(r *rapid.T) {
	l, err := m.stack.Streams.TryAcquire(ctx, "machine")
	if len(m.leases)-len(m.adopted) == 5 {
		if !errors.Is(err, cuda.ErrNoStream) {
			r.Fatalf("a sixth lease was answered with %v", err)
		}
		return
	}
	m.no(err, "lease")
	m.leases = append(m.leases, l)
}

func (m *machine) adopt(r *rapid.T) {
	if len(m.adopted) == 2 {
		r.Skip("enough")
	}
	handle, err := m.stack.Sim.StreamCreate()
	m.no(err, "create")
	l, err := m.stack.Streams.Adopt(handle, "machine")
	m.no(err, "adopt")
	m.leases, m.adopted[l.ID()] = append(m.leases, l), handle
}

// release gives a lease back, and destroys an adopted stream at once: the
// runtime must not name it again. A pooled stream may be released with
// launches open on it; an adopted one must not.
func (m *machine) release(r *rapid.T) {
	if len(m.leases) == 1 {
		r.Skip("the last lease")
	}
	l := m.on(r)
	held := slices.ContainsFunc(m.open, func(o *openLaunch) bool { return o.on == l })
	handle, adopted := m.adopted[l.ID()]
	if held && !adopted {
		r.Skip("its kernels are still to be enqueued")
	}
	err := l.Release()
	if held {
		if !errors.Is(err, core.ErrStreamMisuse) {
			r.Fatalf("giving up a stream with launches open was answered with %v", err)
		}
		return
	}
	m.no(err, "release")
	if adopted {
		delete(m.adopted, l.ID())
		m.no(m.stack.Sim.StreamDestroy(handle), "destroy")
	}
	m.leases = slices.DeleteFunc(m.leases, func(o *cuda.Lease) bool { return o == l })
}

func (m *machine) reap(*rapid.T) { m.no(m.stack.Runtime.ReapPending(ctx), "reap") }

func (m *machine) sync(r *rapid.T) {
	m.no(m.stack.Streams.Synchronize(ctx, m.on(r).ID()), "synchronize")
}

// check compares the books after each step.
func (m *machine) check(r *rapid.T) {
	s := m.stack.Runtime.Stats()
	want := m.want
	want.OpenIntents = uint64(len(m.open))
	got := core.Stats{Live: s.Live, Allocations: s.Allocations, Deallocations: s.Deallocations, Launches: s.Launches,
		Aborts: s.Aborts, PeakRequested: s.PeakRequested, OpenIntents: s.OpenIntents,
		Underflows: s.Underflows, Poisoned: s.Poisoned, Failures: s.Failures}
	if got != want {
		r.Fatalf("books: got %+v, want %+v", got, want)
	}
	if findings := m.stack.Sim.Findings(); len(findings) > 0 {
		r.Fatalf("the oracle: %v", findings)
	}
}

// end ends what is open, compares all bytes, and gives everything back.
func (m *machine) end() {
	for len(m.open) > 0 {
		m.finishOne(m.open[0])
	}
	for _, b := range m.live() {
		m.compare(b)
	}
	for _, b := range m.live() {
		_, err := m.stack.Runtime.Deallocate(ctx, b.ID)
		m.no(err, "free")
	}
	for _, l := range m.leases {
		m.no(l.Release(), "release")
		if handle, ok := m.adopted[l.ID()]; ok {
			m.no(m.stack.Sim.StreamDestroy(handle), "destroy")
		}
	}
	m.closed = true
	m.no(m.stack.Close(), "close")
}

// compare reads a block on some stream.
func (m *machine) compare(b *modelBlock) {
	if !b.written {
		return
	}
	on := m.leases[int(b.ID.Generation)%len(m.leases)]
	ticket, err := m.stack.Runtime.PrepareBlockUse(ctx, b.ID, on.ID(), core.Read)
	m.no(err, "prepare")
	got := make([]byte, b.Bytes)
	m.no(m.stack.Sim.CopyToHostAsync(got, b.ID.Ptr, on.Handle()), "copy")
	m.no(m.stack.Runtime.FinishUse(ctx, ticket), "finish")
	m.no(m.stack.Streams.Synchronize(ctx, on.ID()), "synchronize")
	for i := range b.Bytes / 8 {
		if word := le64(got[8*i:]); word != b.value {
			m.r.Fatalf("word %d of block %v is %#x, want %#x", i, b.ID, word, b.value)
		}
	}
}
