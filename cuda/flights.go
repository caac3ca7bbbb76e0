package cuda

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
	*f = flight{seq: seq, launch: in.ID, name: in.Launch, lease: in.Stream, span: in.Uses[0].Span, tags: in.FirstTags()}
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

// InFlight lists launches that were finished and that the device is not known
// to have completed, at most 32 of each stream: the newest of each stream, then
// the second of each, and so on. It makes no driver call and does not wait for
// one that hangs: the launches of that stream are then left out.
func (r *AsyncResource) InFlight() []core.UseRecord {
	var streams [][]core.UseRecord
	for _, s := range r.streams.table.streams() {
		streams = append(streams, s.inFlight())
	}
	var list []core.UseRecord
	for round, some := 0, true; some; round++ {
		some = false
		for _, launches := range streams {
			if round < len(launches) {
				list, some = append(list, launches[round]), true
			}
		}
	}
	return list
}

// inFlight lists the stream's, newest first.
func (s *stream) inFlight() []core.UseRecord {
	for tries := 50; !s.mu.TryLock(); tries-- {
		if tries == 0 {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	defer s.mu.Unlock()
	return s.flights.after(s.completed.Load())
}
