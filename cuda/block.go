package cuda

import (
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/blocktable"
)

// block is the record of one allocation. Records are pooled, so whoever finds one
// by its generation must compare the generation again under the lock.
type block struct {
	node blocktable.Node[block]

	mu sync.Mutex
	// accesses are the launches announced on the block, and the outstanding
	// uses, with those that nobody has looked for covered ones since.
	accesses []access
	stream   *stream
	core     core.Block
	// blockers is how many announced launches block the free of a retired block.
	blockers int
	// freeRequested is when the free of a retired block was requested, whatever
	// has delayed it since.
	freeRequested core.Instant
	// poisoned: an access could not be fenced, so the memory can be neither
	// used nor reused.
	poisoned bool
	// withheld: its owner has given it back, and a guard keeps it.
	withheld bool
	// mapped is the size of an isolated block's mapping, 0 for one of the pool.
	mapped uint64
	_      [16]byte // blocks share no cache line
}

// usualAccesses is for how many a block has room at first, so that the lists of
// two blocks share no cache line.
const usualAccesses = 8

var blocks = sync.Pool{New: func() any { return &block{accesses: make([]access, 0, usualAccesses)} }}

// fill makes b the record of a fresh allocation. It takes the lock: somebody
// who found the block that it was before may be looking at it.
func (b *block) fill(s *stream, c core.Block, withheld bool, ready access) {
	b.mu.Lock()
	b.stream, b.core, b.poisoned, b.withheld, b.mapped = s, c, false, withheld, 0
	b.accesses = append(b.accesses[:0], ready)
	b.mu.Unlock()
}

// fillMapped is fill for an isolated block, which nobody has to wait for.
func (b *block) fillMapped(s *stream, c core.Block, withheld bool, mapped uint64) {
	b.mu.Lock()
	b.stream, b.core, b.poisoned, b.withheld, b.mapped = s, c, false, withheld, mapped
	b.accesses = b.accesses[:0]
	b.mu.Unlock()
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

// announce adds the use of a launch that e will be recorded behind, and to
// e's fence what the launch must be ordered after. If a launch on another
// stream is announced that it would have to be ordered against, it changes
// nothing and returns that launch's access; b.mu must be held.
func (b *block) announce(e *event, kind core.Access, use int) (holder *access) {
	s, f := e.stream, &e.fence
	b.prune(f)
	for i := range b.accesses {
		if a := &b.accesses[i]; (a.event.stream != s || a.onPeer) && a.kind.Conflicts(kind) && a.event.isOpen() {
			return a
		}
	}
	for i := range b.accesses {
		switch a := &b.accesses[i]; {
		case a.event.stream != s:
			if a.kind.Conflicts(kind) {
				f.add(s, a, use)
			}
		case kind.Writes() && a.event.deferred.Load():
			f.noteSharer(a.event)
		}
	}
	b.accesses = append(b.accesses, access{event: e, kind: kind})
	return nil
}

// writtenByOther reports whether a finished launch of another stream wrote
// the block last; b.mu must be held and the accesses pruned.
func (b *block) writtenByOther(s *stream) bool {
	for i := range b.accesses {
		if a := &b.accesses[i]; a.event.stream != s && a.kind.Writes() && a.event.isLaunch() {
			return true
		}
	}
	return false
}

// prune drops the uses of launches that were withdrawn, and those that
// another covers. Two launches of one stream may end in either order, so the
// older is dropped by its sequence number and not by its coming first; b.mu
// must be held.
func (b *block) prune(f *fence) {
	kept := 0
	for i := range b.accesses {
		a := &b.accesses[i]
		if a.event.isWithdrawn() || b.covered(i, kept) {
			f.release(a.event)
			continue
		}
		if kept < i {
			b.accesses[kept] = *a
		}
		kept++
	}
	b.accesses = b.accesses[:kept] // what lies behind are pooled events
}

// covered reports whether one of the first kept accesses, or one behind i,
// covers access i. That is enough: covering is transitive, so whatever a
// dropped access covered is covered by what dropped it.
func (b *block) covered(i, kept int) bool {
	a := &b.accesses[i]
	if !a.event.isPlaced() {
		return false
	}
	for j := range kept {
		if b.accesses[j].covers(a) {
			return true
		}
	}
	for j := i + 1; j < len(b.accesses); j++ {
		if b.accesses[j].covers(a) {
			return true
		}
	}
	return false
}

// addRecordedUse adds a use whose waits were not queued. It removes nothing but
// what the same stream's order covers, and what is known to be done; b.mu must
// be held.
func (b *block) addRecordedUse(a access, f *fence) {
	kept := 0
	for _, old := range b.accesses {
		needless := old.event.isPlaced() && (old.event.needsNoWait() || old.event.stream == a.event.stream && old.event.seq < a.event.seq)
		if needless || old.event.isWithdrawn() {
			f.release(old.event)
		} else {
			b.accesses[kept] = old
			kept++
		}
	}
	a.event.retain()
	b.accesses = append(b.accesses[:kept], a)
}
