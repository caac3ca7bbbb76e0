package overlap

import (
	"fmt"
	"strings"

	"github.com/fencepost-gpu/fencepost/dev/proof/program"
)

// Kind is what a call does.
type Kind uint8

// The kinds of calls. A launch is prepared, enqueued and finished, or aborted
// when it was prepared. Open prepares and enqueues one, which Finish or Cancel
// ends: by its number among those opened.
const (
	Alloc Kind = iota
	Free
	Launch
	Abort
	Open
	Finish
	Cancel
	// Record enqueues a use and tells of it afterwards.
	Record
	// Reap looks at the queued frees while the device is done with all that it
	// is asked for, Peek while it is done with nothing.
	Reap
	Peek
	// Sync waits on the host for a stream.
	Sync
	// Release gives a lease back.
	Release
	// Trim takes from a pool what nobody uses, while the device is done with all that it is
	// asked for.
	Trim
)

// Adopted is the stream that is an adopted one; those before it are leased.
const Adopted = 2

// Call is one step of a goroutine. Blocks are numbered by their allocation in
// the text of the program; Which is the block of Alloc, Free and Record and the
// open launch of Finish and Cancel.
type Call struct {
	Kind          Kind
	Stream, Which uint8
	Reads, Writes program.Set
	// Units is the size of a block from the runtime's own pool, 0 for one of the driver's.
	Units uint8
	// Quick: the device is done with all that an allocation asks it for.
	Quick bool
}

// String is such as "launch on Y reading a".
func (c Call) String() string {
	on := " on " + program.StreamName(c.Stream)
	switch c.Kind {
	case Finish:
		return fmt.Sprintf("finish %d", c.Which)
	case Cancel:
		return fmt.Sprintf("cancel %d", c.Which)
	case Reap:
		return "reap"
	case Trim:
		return "trim"
	case Peek:
		return "peek"
	case Release:
		return "release " + program.StreamName(c.Stream)
	case Open, Launch, Abort:
		text := c.operation().String()
		return map[Kind]string{Open: "open ", Launch: "", Abort: ""}[c.Kind] + text
	case Alloc:
		text := c.operation().String()
		if c.Quick {
			text += " quickly"
		}
		return text
	case Free, Record, Sync:
		return c.operation().String()
	}
	return fmt.Sprintf("call(%d)%s", c.Kind, on)
}

// operation is the call as one of those that are checked one at a time.
func (c Call) operation() program.Op {
	kind := map[Kind]program.Kind{Alloc: program.Alloc, Free: program.Free, Abort: program.Abort, Record: program.Record, Sync: program.Sync}[c.Kind]
	if c.Kind == Launch || c.Kind == Open {
		kind = program.Launch
	}
	return program.Op{Kind: kind, Stream: c.Stream, Block: c.Which, Reads: c.Reads, Writes: c.Writes, Units: c.Units}
}

func (c Call) isLaunch() bool { return c.Kind == Launch || c.Kind == Abort || c.Kind == Open }

// uses is the blocks that the call uses or frees.
func (c Call) uses() program.Set {
	if c.Kind == Free {
		return 1 << c.Which
	}
	if c.isLaunch() || c.Kind == Record {
		return c.operation().Uses()
	}
	return 0
}

// Program is calls made one after the other, and then goroutines that make
// theirs at the same time.
type Program struct {
	Setup   []Call
	Threads [][]Call
	// Entered: a layer over the pool enters the quick path.
	Entered bool
}

// String is such as "alloc a on X | free a | launch on Y reading a".
func (p Program) String() string {
	parts := []string{join(p.Setup)}
	if p.Entered {
		parts[0] = "entered: " + parts[0]
	}
	for _, calls := range p.Threads {
		parts = append(parts, join(calls))
	}
	return strings.Join(parts, " | ")
}

func join(calls []Call) string {
	var parts []string
	for _, c := range calls {
		parts = append(parts, c.String())
	}
	return strings.Join(parts, "; ")
}

// all yields every call.
func (p Program) all(yield func(Call) bool) {
	for _, calls := range append([][]Call{p.Setup}, p.Threads...) {
		for _, c := range calls {
			if !yield(c) {
				return
			}
		}
	}
}

// pooled reports whether the blocks are from the runtime's own pool.
func (p Program) pooled() bool { return p.has(func(c Call) bool { return c.Units > 0 }) }

// has reports whether there is a call of which that is true.
func (p Program) has(is func(Call) bool) bool {
	for c := range p.all {
		if is(c) {
			return true
		}
	}
	return false
}
