package core

import (
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core/names"
)

// StreamID names a stream lease or an adopted stream. It is never reused
// within a process, unlike the driver's stream handles, so it can be kept
// after the lease was given back. The zero value is [DefaultStream].
type StreamID uint64

// DefaultStream is the device's legacy default stream.
const DefaultStream StreamID = 0

// String returns "default" for the default stream and the number otherwise.
func (s StreamID) String() string {
	if s == DefaultStream {
		return "default"
	}
	return strconv.FormatUint(uint64(s), 10)
}

// Tag says on whose behalf memory is allocated. It is the label under which
// budgets, metrics and findings account a block, so it should come from a
// small fixed set ("sort.keys", "index.build") and carry no identifiers.
// The runtime shows a tag that is longer than 256 bytes or no UTF-8 as [names.Bound]
// does. Both forms are the same tag.
type Tag string

// OrUntagged returns the tag that memory is accounted under: t as [names.Bound] keeps
// it, or "untagged" if t is empty.
func (t Tag) OrUntagged() Tag {
	if t == "" {
		return names.Untagged
	}
	return Tag(names.Bound(string(t)))
}

// Generation numbers allocations. Generations are unique and increasing
// across all devices of the process and start at 1; zero names no allocation.
//
// Of two owners of an address the later one has the larger generation, also if the memory passed from
// one stream to another: a backend draws it after it has taken the memory, which it gets only after the
// free of the former owner was queued, and a caller that frees a block has its generation by then. Of blocks
// that share no byte the larger generation says nothing about which was there first.
type Generation uint64

// NoBytes is the generation in a use of memory that has no bytes, such as an
// empty typed slice. Prepared uses of it are left out, as recorders leave out
// empty memory; any other operation on it is refused like a stale handle.
const NoBytes = ^Generation(0)

// NoBlock is the generation in the [Tracked.BlockID] of memory that has no block: it was
// allocated around the runtime, or is another framework's (DLPack, Arrow device).
const NoBlock = NoBytes - 1

// lastGeneration and lastLaunch are written by many goroutines, so each has a
// cache line of its own.
var (
	lastGeneration paddedCounter
	lastLaunch     paddedCounter
)

type paddedCounter struct {
	_ [64]byte
	atomic.Uint64
	_ [56]byte
}

// NextGeneration returns a fresh generation, larger than every one returned
// before. It is safe for concurrent use and does not block.
func NextGeneration() Generation { return Generation(lastGeneration.Add(1)) }

// String returns the generation as "#n", the form used in messages.
func (g Generation) String() string { return "#" + strconv.FormatUint(uint64(g), 10) }

// Access says what a launch does with the bytes of a block. Accesses form a
// lattice under [Access.Combine]: Read and Write are incomparable and
// ReadWrite is above both. The zero value is no access and is refused.
type Access uint8

// The kinds of access.
const (
	// Read consumes the bytes. It must wait for earlier writes on other
	// streams.
	Read Access = 1 << iota
	// Write replaces bytes without looking at them. It must wait for
	// earlier writes and reads on other streams.
	Write
	// ReadWrite does both; it waits for what Write waits for.
	ReadWrite = Read | Write
)

// Reads reports whether the access consumes the block's bytes.
func (a Access) Reads() bool { return a&Read != 0 }

// Writes reports whether the access changes the block's bytes.
func (a Access) Writes() bool { return a&Write != 0 }

// Combine returns the weakest access that covers both a and b.
func (a Access) Combine(b Access) Access { return a | b }

// Conflicts reports whether two accesses to one block must be ordered.
func (a Access) Conflicts(b Access) bool { return a.Writes() || b.Writes() }

// Valid reports whether a is one of the three accesses.
func (a Access) Valid() bool { return a != 0 && a&^ReadWrite == 0 }

// nameOf is the name of a value of kind, "kind(n)" for one that has none.
func nameOf[T ~uint8](value T, kind string, names ...string) string {
	if int(value) < len(names) && names[value] != "" {
		return names[value]
	}
	return fmt.Sprintf("%s(%d)", kind, uint8(value))
}

// String returns "read", "write" or "read_write".
func (a Access) String() string { return nameOf(a, "access", "", "read", "write", "read_write") }
