package cuda

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/jackc/puddle/v2"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/readings"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/legible"
)

// Lease is the right to enqueue on one stream. Its id is never used again, so
// code that kept it after Release is refused instead of meeting the next
// holder's work.
type Lease struct {
	id       core.StreamID
	stream   *stream
	pool     *StreamPool
	tag      core.Tag
	since    time.Time
	adopted  bool
	released atomic.Bool
	// resource is puddle's; nil for an adopted stream, and once Close has taken
	// the stream out of puddle. The pool's mu guards it.
	resource *puddle.Resource[*stream]
	// account is that of Follow, or nil.
	account *core.Account
	// frames are the stack of who leased it, of that depth.
	frames [leaseFrames]uintptr
	depth  int
}

// leaseFrames is how deep the stack of a lease is at most: each frame costs a job some 70 ns.
const leaseFrames = 8

// captureStack notes who leases, without the caller's first skip frames.
func (l *Lease) captureStack(skip int) *Lease {
	l.depth = runtime.Callers(skip+2, l.frames[:])
	return l
}

func (l *Lease) stack() core.Stack { return l.frames[:l.depth] }

// register makes the lease's id usable.
func (p *StreamPool) register(l *Lease) {
	p.table.setLease(l.id, l.stream)
	p.mu.Lock()
	p.leased[l.id] = l
	p.mu.Unlock()
}

// admit is register for a lease that was just granted, unless the pool was closed
// meanwhile: then its stream ends.
func (p *StreamPool) admit(l *Lease) bool {
	p.table.setLease(l.id, l.stream)
	p.mu.Lock()
	if !p.closed.Load() {
		p.leased[l.id] = l
		p.mu.Unlock()
		return true
	}
	l.resource.Hijack()
	p.ending++
	p.mu.Unlock()
	p.table.unlease(l.id)
	p.end(l.stream)
	return false
}

// Follow tells an account of the launches on the lease that are prepared from now on and finished, and how long the stream stood on the device
// behind work of leases that another account follows, or none. It is called at most once, before
// the first launch.
func (l *Lease) Follow(a *core.Account) {
	l.account = a
	l.stream.followed.Store(l)
}

// followedAs is the lease of an id on the stream, if an account follows it, or nil.
func (s *stream) followedAs(id core.StreamID) *Lease {
	if l := s.followed.Load(); l != nil && l.id == id {
		return l
	}
	return nil
}

// ID names the lease in requests, launches and telemetry.
func (l *Lease) ID() core.StreamID { return l.id }

// Handle is the driver's handle. It must not be used after Release.
func (l *Lease) Handle() driver.Stream { return l.stream.Handle() }

// Release gives the stream back; work that was enqueued still runs. A second
// Release is a [core.StreamMisuseError] and changes nothing, and so is one of a
// stream that is capturing. Blocks that were
// allocated under the lease can still be freed. It may block only for an
// adopted stream, a moment for what others are enqueueing on it and on the
// driver's record of a last event, and if a capture of the lease could not be
// ended; if it fails the lease is as it was.
func (l *Lease) Release() error {
	if l == nil {
		return missingHandle("Release", "lease")
	}
	if !l.released.CompareAndSwap(false, true) {
		return &core.StreamMisuseError{Op: "Release", Stream: l.id, Reason: fmt.Sprintf("the lease %s was released before",
			legible.Value(l.tag))}
	}
	if err := l.mayRelease(); err != nil {
		l.released.Store(false)
		return err
	}
	l.pool.table.unlease(l.id)
	if !l.adopted {
		l.pool.takeBack(l)
		return nil
	}
	l.pool.mu.Lock()
	delete(l.pool.leased, l.id)
	l.pool.mu.Unlock()
	err := l.pool.giveUp(l)
	if err != nil {
		l.pool.register(l)
		l.released.Store(false)
	}
	return l.pool.observe("Release", err)
}

// takeBack gives the stream of a lease back to puddle, or ends it if the pool
// was closed since it was leased.
func (p *StreamPool) takeBack(l *Lease) {
	p.mu.Lock()
	delete(p.leased, l.id)
	if l.resource != nil {
		l.resource.Release()
		p.mu.Unlock()
		return
	}
	p.ending++
	p.mu.Unlock()
	p.end(l.stream)
}

// Stats is a snapshot of the pool. It makes no device call.
func (p *StreamPool) Stats() readings.StreamStats {
	st := p.pool.Stat()
	out := readings.StreamStats{Max: int(p.max), Total: int(st.TotalResources()), Leased: int(st.AcquiredResources()), Idle: int(st.IdleResources()),
		Acquires: st.AcquireCount(), Waits: st.EmptyAcquireCount(), Refused: p.refused.Load(), Waiting: int(p.waiting.Load()), WaitTime: st.AcquireDuration()}
	for _, s := range p.table.everyStream() {
		out.Events += int(s.Events())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	out.Adopted = len(p.adoptedHandles)
	for _, l := range p.leased {
		if !l.adopted && l.resource == nil { // puddle does not know of it any more
			out.Leased++
			out.Total++
		}
		if age := time.Since(l.since); age > out.OldestAge {
			out.OldestAge, out.OldestTag = age, l.tag
		}
	}
	return out
}

// Leases lists the leases held now, in no order.
func (p *StreamPool) Leases() []readings.LeaseInfo {
	p.mu.Lock()
	defer p.mu.Unlock()
	infos := make([]readings.LeaseInfo, 0, len(p.leased))
	for _, l := range p.leased {
		infos = append(infos, readings.LeaseInfo{ID: l.id, Tag: l.tag, Since: l.since, Stack: l.stack(), Adopted: l.adopted})
	}
	return infos
}
