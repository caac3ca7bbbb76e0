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
	for tries := 50; !s.mu.TryLock(); tries-- {
		if tries == 0 {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	defer s.mu.Unlock()
	return s.flights.after(s.completed.Load())
}

// Newest is the launch that was finished last, zero if none was; the stream must be
// locked.
func (s *Stream) Newest() core.UseRecord { return s.flights.newest() }
