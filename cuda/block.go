package cuda

import (
	"slices"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
)

// block is the record of one allocation. Records are pooled: whoever finds
// one by its generation must compare the generation again under the lock.
type block struct {
	mu     sync.Mutex
	core   core.Block
	stream *stream
	// accesses are the outstanding ones that no other covers.
	accesses []access
	intents  []intent
	// closed is closed when an intent ends, for those who wait for one.
	closed chan struct{}
	// writer is the stream of the last finished write.
	writer *stream
	// poisoned: an access could not be fenced, so the memory can be neither
	// used nor reused.
	poisoned bool
}

// intent is an announced launch on a block.
type intent struct {
	id     uint64
	stream *stream
	lease  core.StreamID
	access core.Access
	launch string
}

var blocks = sync.Pool{New: func() any { return new(block) }}

func (b *block) recycle() {
	b.mu.Lock()
	b.core, b.stream, b.writer, b.poisoned = core.Block{}, nil, nil, false
	b.accesses, b.intents = b.accesses[:0], b.intents[:0]
	b.mu.Unlock()
	blocks.Put(b)
}

// check says whether id names this block and it is live; b.mu must be held.
func (b *block) check(op string, id core.BlockID, stream core.StreamID) error {
	switch {
	case b.core.ID.Generation != id.Generation:
		return &core.UseAfterFreeError{Op: op, Generation: id.Generation, Block: id, State: core.Freed}
	case b.poisoned:
		return &core.DriverError{Op: op, Name: "FENCEPOST_POISONED", Text: "an earlier use of the block could not be fenced",
			Detail: "block " + id.String() + " can be neither used nor reused until the device is reset"}
	case b.core.State != core.Live:
		return &core.UseAfterFreeError{Op: op, Generation: id.Generation, Block: id, State: b.core.State, Tag: b.core.Tag}
	case id.Ptr-b.core.ID.Ptr >= b.core.Bytes:
		return &core.StreamMisuseError{Op: op, Block: id, Stream: stream, Reason: "the pointer does not lie inside the block of that generation"}
	}
	return nil
}

// conflict returns the open intent on another stream that a use with access
// on s would have to be ordered against, nil if there is none.
func (b *block) conflict(s *stream, access core.Access) *intent {
	for i := range b.intents {
		if in := &b.intents[i]; in.stream != s && in.access.Conflicts(access) {
			return in
		}
	}
	return nil
}

// waitClosed returns a channel that is closed when an intent on b ends.
func (b *block) waitClosed() <-chan struct{} {
	if b.closed == nil {
		b.closed = make(chan struct{})
	}
	return b.closed
}

// closeIntent removes the intent of launch id; b.mu must be held.
func (b *block) closeIntent(id uint64) {
	b.intents = slices.DeleteFunc(b.intents, func(in intent) bool { return in.id == id })
	if b.closed != nil {
		close(b.closed)
		b.closed = nil
	}
}

// depend adds to f what a use with access on s must be ordered after.
func (b *block) depend(f *fence, s *stream, access core.Access, use int) {
	for _, a := range b.accesses {
		if access.Writes() || a.kind.Writes() {
			f.add(s, a, use)
		}
	}
}

// finished adds a use and drops those it covers. Two launches of one stream
// may arrive here in either order, so the older is dropped by its sequence
// number and not by its coming later.
func (b *block) finished(a access) {
	for _, old := range b.accesses {
		if old.covers(a) {
			return
		}
	}
	b.accesses = slices.DeleteFunc(b.accesses, func(old access) bool {
		covered := a.covers(old)
		if covered {
			old.event.release()
		}
		return covered
	})
	a.event.retain()
	b.accesses = append(b.accesses, a)
}

// recorded adds a use whose waits were not queued. It removes nothing but
// what the same stream's order covers, and what is known to be done.
func (b *block) recorded(a access) {
	b.accesses = slices.DeleteFunc(b.accesses, func(old access) bool {
		needless := old.event.done() || old.event.stream == a.event.stream && old.event.seq < a.event.seq
		if needless {
			old.event.release()
		}
		return needless
	})
	a.event.retain()
	b.accesses = append(b.accesses, a)
}
