package corpus

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Stream is a lease, with a word in which checks count what differs.
type Stream struct {
	*cuda.Lease
	sum core.Block
}

// Stream leases a stream.
func (w *World) Stream() *Stream {
	l, err := w.Streams().Acquire(w.ctx, "corpus")
	w.must(err)
	return w.furnished(l)
}

// Adopt makes a stream of the program's own and brings it under a lease.
func (w *World) Adopt() *Stream {
	h, err := w.Driver().StreamCreate()
	w.must(err)
	last := 0 // undone behind the end of the runtime, and before that of the device
	if w.sim != nil {
		last = 1
	}
	if !w.Tier.OwnProcess { // or else it ends with the device, which is the runtime's
		w.after = slices.Insert(w.after, last, func() error { return w.Driver().StreamDestroy(h) })
	}
	l, err := w.Streams().Adopt(h, "corpus.adopted")
	w.must(err)
	return w.furnished(l)
}

func (w *World) furnished(l *cuda.Lease) *Stream {
	s := &Stream{Lease: l}
	w.streams = append(w.streams, s)
	var err error
	s.sum, err = w.Allocate(w.ctx, core.Request{Bytes: wordBytes, Stream: l.ID(), Tag: "sum"})
	w.must(err)
	w.own = append(w.own, s.sum.ID)
	w.Do(Job{Name: "clear_sum", On: s, Uses: []core.Use{{Block: s.sum.ID, Access: core.Write}},
		Enqueue: func(h driver.Stream) error { return w.Driver().MemsetAsync(s.sum.ID.Ptr, 0, wordBytes, h) }})
	return s
}

// Hold keeps what is enqueued on the stream from now on from running until
// release is called, at the latest when the program ends.
func (w *World) Hold(s *Stream) (release func()) {
	end, err := w.machine.hold(w.sim, s.Handle())
	w.must(err)
	once := sync.OnceFunc(end)
	w.held = append(w.held, once)
	return once
}

// Sync waits until the stream is done, as a program does that has no other
// means of order.
func (w *World) Sync(s *Stream) { w.must(w.Streams().Synchronize(w.ctx, s.ID())) }

// Refused takes the error of a call that is the bug. A program that looks at
// errors would stop here; this one goes on.
func (w *World) Refused(err error) { w.watch.refused = errors.Join(w.watch.refused, err) }

// failf ends the program because it could not be what it is there to be.
func (w *World) failf(format string, args ...any) { w.must(fmt.Errorf(format, args...)) }
