package cuda

import (
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// StreamInfo is what the runtime knows of one physical stream.
type StreamInfo struct {
	// Number tells the streams of a pool apart; another stream may have it when
	// this one is gone.
	Number int
	// Lease is who has the stream; nil if nobody does. The default stream needs
	// none.
	Lease *LeaseInfo
	// Default is the legacy default stream.
	Default bool
	// Busy: a call of the driver's is under way on the stream, so Seq, After
	// and Last are not known.
	Busy bool
	// Seq is the number of the stream's newest event, Completed that of the
	// newest which the device is known to have completed.
	Seq, Completed uint64
	// After is up to which event of other streams everything that is enqueued
	// from now on is ordered; streams of which it is none are left out.
	After []StreamPoint
	// Last is the newest launch that was finished; its LaunchID is zero if
	// there is none.
	Last core.UseRecord
	// OpenLaunches are launches prepared and not ended, PendingFrees the frees
	// that the device is not known to have completed, and PendingBytes theirs.
	OpenLaunches, PendingFrees, PendingBytes uint64
	// Launches, WaitsQueued and WaitsElided count since the stream was made.
	// Adopted streams are counted together: each of them has the sums.
	Launches, WaitsQueued, WaitsElided uint64
	// Capturing: a CUDA graph is being captured on it, through [Lease.Capture].
	Capturing bool
}

// StreamPoint is a place in the order of the stream of that number.
type StreamPoint struct {
	Number int
	Seq    uint64
}

// Inspect lists the physical streams that there are, the default stream first.
// It makes no driver call and waits for none: what it cannot know because of
// that it leaves out, see [StreamInfo.Busy].
func (p *StreamPool) Inspect() []StreamInfo {
	leases := map[core.StreamID]LeaseInfo{}
	for _, l := range p.Leases() {
		leases[l.ID] = l
	}
	holders := map[*stream]*LeaseInfo{}
	for id, s := range p.table.leases.Load().each {
		if l, ok := leases[id]; ok {
			holders[s] = &l
		}
	}
	var list []StreamInfo
	for _, s := range p.table.streams() {
		info := s.inspect()
		info.Lease = holders[s]
		list = append(list, info)
	}
	slices.SortStableFunc(list, func(a, b StreamInfo) int { return a.Number - b.Number })
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

func (s *stream) inspect() StreamInfo {
	info := StreamInfo{
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
		info.After = append(info.After, StreamPoint{Number: slot, Seq: seq})
	})
	return info
}

// lockSoon takes the lock unless somebody holds it for longer than the driver
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
