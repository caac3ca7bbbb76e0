package cuda

import (
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/readings"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Inspect lists the physical streams that there are, the default stream first.
// It makes no driver call and waits for none: what it cannot know because of
// that it leaves out, see [readings.StreamInfo.Busy].
func (p *StreamPool) Inspect() []readings.StreamInfo {
	leases := map[core.StreamID]readings.LeaseInfo{}
	for _, l := range p.Leases() {
		leases[l.ID] = l
	}
	holders := map[*stream]*readings.LeaseInfo{}
	for id, s := range p.table.leases.Load().each {
		if l, ok := leases[id]; ok {
			holders[s] = &l
		}
	}
	var list []readings.StreamInfo
	for _, s := range p.table.streams() {
		info := s.inspect()
		info.Lease = holders[s]
		list = append(list, info)
	}
	slices.SortStableFunc(list, func(a, b readings.StreamInfo) int { return a.Number - b.Number })
	return list
}

// LeaseOf is the id under which the stream of a driver's handle is leased or
// adopted, or was last if it is not any more. ok is false for a handle that is not
// of the pool's and of a stream that was never leased. It takes no lock.
func (p *StreamPool) LeaseOf(handle driver.Stream) (id core.StreamID, ok bool) {
	if handle == 0 || handle == legacyHandle {
		return core.DefaultStream, true
	}
	for _, s := range p.table.streams() {
		if lease := core.StreamID(s.lease.Load()); s.Handle() == handle && lease > id {
			id = lease // of two with one handle the newer: the other is gone
		}
	}
	return id, id != 0
}

// Enqueuing is what enqueued work on a stream, see [StreamPool.Enqueuing]. It does not change, and is safe for concurrent use.
type Enqueuing struct {
	stream *stream
	place  uint64
	// Outside says that no launch of the runtime's enqueued it.
	Outside bool
}

// Enqueuing is what enqueues work on the stream of a driver's handle now. ok is false if that is not known: of another stream, where several enqueue
// at once, or the runtime itself does, and in a capture. It is safe for concurrent use, and may block while another goroutine enqueues on the stream.
func (p *StreamPool) Enqueuing(handle driver.Stream) (e Enqueuing, ok bool) {
	id, ok := p.LeaseOf(handle)
	if !ok {
		return e, false
	}
	if e.stream = p.table.leases.Load().find(id); e.stream == nil {
		return e, false
	}
	place, launch, known := e.stream.Place()
	e.place, e.Outside = place, !launch
	return e, known
}

// Launch is the launch, when it was finished, or of work outside one the next; and whether the device is known to have completed it. known is false if
// it was not finished yet, or is not kept any more and may be in flight. It does not wait for a driver's call that hangs.
func (e Enqueuing) Launch() (u core.UseRecord, done, known bool) { return e.stream.LaunchAt(e.place) }

func (s *stream) inspect() readings.StreamInfo {
	info := readings.StreamInfo{
		Number: s.Slot(), Default: s.Handle() == 0, Completed: s.Completed(),
		OpenLaunches: clamp(s.Open()), PendingFrees: s.frees.pendingFrees(), Capturing: s.Capturing(),
		Launches: s.books.Launches.Load(), WaitsQueued: s.books.Waits.Load(), WaitsElided: s.books.Elided.Load(),
	}
	info.PendingBytes = s.frees.bytes.pending()
	if !s.lockSoon() {
		info.Busy = true
		return info
	}
	defer s.Unlock()
	info.Seq = s.Seq()
	info.Last = s.Newest()
	s.After(func(slot int, seq uint64) {
		info.After = append(info.After, readings.StreamPoint{Number: slot, Seq: seq})
	})
	return info
}

// lockSoon takes the lock unless another goroutine holds it for longer than the driver
// usually needs for a call.
func (s *stream) lockSoon() bool {
	for tries := 10; !s.TryLock(); tries-- {
		if tries == 0 {
			return false
		}
		time.Sleep(100 * time.Microsecond)
	}
	return true
}
