package fence

import (
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// flight is what is kept of a finished launch, for the report of a lost
// device.
type flight struct {
	seq, launch uint64
	name        string
	lease       core.StreamID
	span        core.SpanRef
	tags        [4]core.Tag
}

// flights are the newest launches of a stream.
type flights struct {
	ring [32]flight
	n    uint64
}

// note keeps a launch; the stream's lock must be held.
func (fs *flights) note(in *core.Intent, seq uint64) {
	f := &fs.ring[fs.n%uint64(len(fs.ring))]
	fs.n++
	f.seq, f.launch, f.name, f.lease, f.span = seq, in.ID, in.Launch, in.Stream, in.Uses[0].Span
	in.FirstTags(&f.tags)
}

// after lists the launches after seq, newest first; the stream's lock must be
// held.
func (fs *flights) after(seq uint64) (list []core.UseRecord) {
	size := uint64(len(fs.ring))
	for i := fs.n; i > 0 && fs.n-i < size && fs.ring[(i-1)%size].seq > seq; i-- {
		list = append(list, fs.ring[(i-1)%size].record())
	}
	return list
}

// newest is the launch that was noted last, if any; the stream's lock must be
// held.
func (fs *flights) newest() core.UseRecord {
	if fs.n == 0 {
		return core.UseRecord{}
	}
	return fs.ring[(fs.n-1)%uint64(len(fs.ring))].record()
}

func (f *flight) record() core.UseRecord {
	return core.UseRecord{LaunchID: f.launch, Launch: f.name, Stream: f.lease, Span: f.span, Tags: f.tags}
}

// InFlight lists the launches that were finished and that the device is not known to have
// completed, newest first, at most 32. It does not wait for whoever holds the lock over a
// driver's call: after some 50 ms it gives up and there are none.
func (s *Stream) InFlight() []core.UseRecord {
	if !s.lockSoon() {
		return nil
	}
	defer s.mu.Unlock()
	return s.flights.after(s.completed.Load())
}

// lockSoon locks the stream unless somebody holds it over a driver's call that hangs.
func (s *Stream) lockSoon() bool {
	for tries := 50; !s.mu.TryLock(); tries-- {
		if tries == 0 {
			return false
		}
		time.Sleep(time.Millisecond)
	}
	return true
}

// Newest is the launch that was finished last, zero if none was; the stream must be
// locked.
func (s *Stream) Newest() core.UseRecord { return s.flights.newest() }

// Place is where the stream's next launch that is finished will stand among all of them, counted from 0, and whether a launch enqueues
// work on it now, and none else. known is false if that may be something else, or several, and in a capture. It waits for the stream's lock.
func (s *Stream) Place() (n uint64, launch, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := s.open.Load()
	launch = open == isOwn+1
	return s.flights.n, launch, (launch || open == 0) && !s.Capturing()
}

// LaunchAt is the launch at a place, and whether it is complete. known is false if it is not finished yet, or is not kept
// any more and may be in flight, or if a driver's call hangs, as for [Stream.InFlight].
func (s *Stream) LaunchAt(n uint64) (u core.UseRecord, done, known bool) {
	if !s.lockSoon() {
		return u, false, false
	}
	defer s.mu.Unlock()
	fs, size := &s.flights, uint64(len(s.flights.ring))
	if n >= fs.n {
		return u, false, false
	}
	at := max(n, fs.n-min(fs.n, size)) // what is older than one that is complete is complete
	f := &fs.ring[at%size]
	if done = f.seq <= s.completed.Load(); at == n {
		return f.record(), done, true
	}
	return u, done, done
}
