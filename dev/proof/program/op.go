// Package program has the programs that the fences are checked with: short
// lists of operations on a few streams and blocks, every one of them up to a
// bound, and random ones.
package program

import (
	"fmt"
	"iter"
	"math/bits"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Kind is what an operation does.
type Kind uint8

// The kinds. Launches of all three kinds are several steps of their host
// goroutine each, and so is a recorded use; the others are one.
const (
	// Alloc allocates the next block on Stream.
	Alloc Kind = iota
	// Launch prepares, enqueues and finishes a launch on Stream.
	Launch
	// Free deallocates Block.
	Free
	// Sync waits on the host until Stream has done what is enqueued there.
	Sync
	// Abort prepares a launch on Stream and aborts it.
	Abort
	// Record enqueues a use of Block on Stream without preparing it, and
	// records it afterwards.
	Record
	// Reap lets the device do what is enqueued on Stream, and then has the
	// runtime look, without waiting, at how far all streams have come.
	Reap
	// Faulty is a launch whose event the driver refuses to record.
	Faulty
	// FaultyRecord is a recorded use whose event the driver refuses to record.
	FaultyRecord
	// GiveUp gives Stream back to its owner, and takes another in its place:
	// all streams of a program that has it are adopted.
	GiveUp
	kinds

	// The others are for goroutines whose calls overlap.

	// Open prepares and enqueues a launch, which Finish or Cancel ends: Block is its number among
	// those opened.
	Open
	Finish
	Cancel
	// ReapDone has the runtime look at the queued frees while the device is done with all that it is
	// asked for, Peek while it is done with nothing.
	ReapDone
	Peek
	// Release gives the lease of Stream back.
	Release
	// Trim takes from a pool what is not used, while the device is done with all that it is asked for.
	Trim
)

// MaxBlocks is how many blocks a program may have, live ones or not.
const MaxBlocks = 32

// Set is a set of blocks.
type Set uint64

// Has reports whether block b is in the set.
func (s Set) Has(b uint8) bool { return s>>b&1 != 0 }

// Len is how many blocks are in the set.
func (s Set) Len() int { return bits.OnesCount64(uint64(s)) }

// All yields the blocks of the set.
func (s Set) All() iter.Seq[uint8] {
	return func(yield func(uint8) bool) {
		for ; s != 0; s &= s - 1 {
			if !yield(uint8(bits.TrailingZeros64(uint64(s)))) {
				return
			}
		}
	}
}

// Op is one operation. Blocks are numbered in the order of their allocation.
type Op struct {
	Kind   Kind
	Stream uint8
	// Block is what Free, Record and FaultyRecord name, and what Alloc makes.
	Block uint8
	// Units is the size of what Alloc makes, where sizes matter.
	Units uint8
	// AtOnce: the device is done with all that an allocation asks it for.
	AtOnce bool
	// Reads and Writes are what a launch uses; no block is in both.
	Reads, Writes Set
}

// launches are the kinds that are prepared.
var launches = [...]Kind{Launch, Abort, Faulty}

// IsLaunch reports whether the operation is prepared: a launch, whatever
// becomes of it.
func (o Op) IsLaunch() bool {
	return o.Kind == Launch || o.Kind == Abort || o.Kind == Faulty || o.Kind == Open
}

// IsRecord reports whether the operation is a use that is recorded afterwards,
// whatever becomes of that.
func (o Op) IsRecord() bool { return o.Kind == Record || o.Kind == FaultyRecord }

// GivesUp reports whether the program gives streams up.
func (p Program) GivesUp() bool {
	return slices.ContainsFunc(p, func(o Op) bool { return o.Kind == GiveUp })
}

// Uses is every block that the operation uses as a launch or a recorded use.
func (o Op) Uses() Set {
	if o.IsRecord() {
		return 1 << o.Block
	}
	return o.Reads | o.Writes
}

// Touches is the blocks that the operation uses or frees.
func (o Op) Touches() Set {
	if o.Kind == Free {
		return 1 << o.Block
	}
	return o.Uses()
}

// Changes is the blocks that the operation writes.
func (o Op) Changes() Set {
	if o.IsRecord() {
		return 1 << o.Block
	}
	return o.Writes
}

// Conflicts reports whether two uses touch a block that one of them writes.
func (o Op) Conflicts(with Op) bool {
	return o.Changes()&with.Uses() != 0 || o.Uses()&with.Changes() != 0
}

// Program is a list of operations in the order in which they are begun.
type Program []Op

// String is such as "alloc a on X; launch on Y reading a; free a".
func (p Program) String() string {
	var parts []string
	for _, o := range p {
		parts = append(parts, o.String())
	}
	return strings.Join(parts, "; ")
}

// texts are what operations look like.
var texts = [...]string{
	Alloc: "alloc $block$size on $stream$once", Free: "free $block", Sync: "sync $stream", Reap: "reap $stream", GiveUp: "give up $stream",
	Launch: "launch on $stream$uses", Abort: "aborted launch on $stream$uses", Faulty: "faulty launch on $stream$uses", Open: "open launch on $stream$uses",
	Record: "record a use of $block on $stream", FaultyRecord: "record a use of $block on $stream, faultily",
	Finish: "finish $number", Cancel: "cancel $number", ReapDone: "reap", Peek: "peek", Trim: "trim", Release: "release $stream",
}

// String is such as "launch on Y reading a writing b".
func (o Op) String() string {
	return os.Expand(texts[o.Kind], func(part string) string {
		switch {
		case part == "block":
			return blockName(o.Block)
		case part == "number":
			return strconv.Itoa(int(o.Block))
		case part == "stream":
			return StreamName(o.Stream)
		case part == "uses":
			return o.useText()
		case part == "size" && o.Units > 0:
			return fmt.Sprintf(" of %d", o.Units)
		case part == "once" && o.AtOnce:
			return " at once"
		}
		return ""
	})
}

func (o Op) useText() string {
	text := ""
	for b := range o.Uses().All() {
		if o.Reads.Has(b) {
			text += " reading " + blockName(b)
		} else {
			text += " writing " + blockName(b)
		}
	}
	return text
}

func blockName(b uint8) string {
	if b < 26 {
		return string(rune('a' + b))
	}
	return fmt.Sprintf("b%d", b)
}

// StreamName is the letter of a stream in texts, from X on.
func StreamName(s uint8) string {
	if s < 3 {
		return string(rune('X' + s))
	}
	return fmt.Sprintf("S%d", s)
}
