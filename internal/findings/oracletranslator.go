package findings

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
)

// oracleSource is the source of the oracle's findings.
const oracleSource = "sim-oracle"

// Stack is what knows the blocks and streams of a runtime. The base knows the
// addresses that the device sees, so it is asked for those, and the guard for
// what the owners of the blocks know.
type Stack struct {
	Base core.Resource
	// Released lists blocks that left the books of Base last, for accesses that come late; nil if
	// there are none.
	Released func(yield func(core.Block) bool)
	Guard    *debugguard.Resource
	Streams  *cuda.StreamPool
	// Judged says that the device has an oracle, which reports here.
	Judged bool
	// Unmaps says that the memory of a block which is released is taken off the map.
	Unmaps bool
	// Enqueued, if not nil, knows which launch enqueued which kernel.
	Enqueued *Enqueued
}

// oracleTranslator turns the findings of the simulated device, which knows addresses and
// handles only, into findings that name block and stream.
type oracleTranslator struct {
	stack func() (Stack, bool)
}

// awaits reports whether the oracle will say what a finding of the guard's suspects: a launch that
// runs was given a number that need be no address, or a pointer to what was freed. The oracle tells
// of a touch, and exactly which.
func (o *oracleTranslator) awaits(f core.Finding) bool {
	if len(f.Suspects) == 0 || f.Suspects[0].LaunchID == 0 {
		return false
	}
	stack, _ := o.stack()
	return stack.Judged && (f.Kind == names.FindingUndeclaredAccess && f.Unproven || f.Kind == names.FindingStaleHandle)
}

// translated is a finding of the oracle's in the words of the stack.
type translated struct {
	core.Finding
	// by is the operation that did it.
	by sim.Party
	// newest is newer than each block that there was.
	newest core.Generation
}

// translate is false for what the runtime reports itself, and for an address in
// no block, of which there is nothing to add to that report.
func (o *oracleTranslator) translate(f sim.Finding) (translated, bool) {
	kind := oracleKind(f)
	if kind == "" {
		return translated{}, false // the runtime reports the lost context itself
	}
	stack, _ := o.stack() // without one nothing is named
	victim := stack.blockAt(f)
	if f.Kind == sim.IllegalAddress && victim.ID.Generation == 0 {
		return translated{}, false
	}
	found, canary := stack.owned(victim)
	between := found.Victim.Bytes < victim.Bytes // red zones
	if found.Victim.ID == victim.ID && victim.ID.Generation != 0 && victim.ID.Ptr == f.AllocPtr {
		found.Victim.ID.Ptr, found.Victim.Bytes = f.BlockPtr, f.BlockBytes // of a layer's that the guard does not know
	}
	found.Kind, found.Source, found.Time = kind, oracleSource, time.Now()
	found.Text = "the device's oracle: " + f.Describe(stack.streamName)
	culprit := f.First
	if f.Kind == sim.FreeRace && culprit.Access != 0 && !culprit.Guard && between {
		found.Kind = lateKind(f) // the device's free is the guard's, long after the owner's
	}
	if f.First.Guard != f.Other.Guard && f.Kind == sim.Race {
		culprit = stack.watched(&found, f, canary)
	}
	stack.suspect(&found, f, culprit)
	if culprit.Ptr != 0 && victim.ID.Generation != 0 {
		found.Offset = int64(culprit.Ptr - found.Victim.ID.Ptr)
	}
	return translated{found, culprit, core.NextGeneration()}, true
}

// blockAt names the block of a finding: the newest released one at the
// address for an access after the free, the one that holds it otherwise.
func (s Stack) blockAt(f sim.Finding) (victim core.Block) {
	ptr := cmp.Or(f.BlockPtr, f.First.Ptr)
	consider := func(b core.Block) {
		if ptr-b.ID.Ptr < b.Bytes && isCloser(f, b, victim) {
			victim = b
		}
	}
	if s.Base != nil { // else the stack is not built yet
		s.Base.Inspect().Blocks(func(info core.BlockInfo) bool {
			if !isLate(f) || f.Withheld || info.Block.State != core.Live {
				consider(info.Block)
			}
			return true
		})
	}
	if victim.ID.Generation == 0 && s.Released != nil {
		for b := range s.Released {
			consider(b)
		}
	}
	return victim
}

// isCloser reports whether b is rather the block of a finding than another one that lies there: the device knows address and
// size, which a later block in the same memory seldom has; of two such it is the newer one.
func isCloser(f sim.Finding, b, other core.Block) bool {
	is := func(b core.Block) bool { return b.Bytes != 0 && b.ID.Ptr == f.AllocPtr && b.Bytes == f.AllocBytes }
	if is(b) != is(other) {
		return is(b)
	}
	return b.ID.Generation > other.ID.Generation
}

// owned begins a finding about a block as its owner knows it, without what layers keep around
// that. canary is set for one of the guard's own.
func (s Stack) owned(b core.Block) (f core.Finding, canary bool) {
	if s.Guard == nil || b.ID.Generation == 0 {
		return core.Finding{Victim: b}, false
	}
	if known, ok := s.Guard.Inspect().Remember(b.ID); ok {
		return core.Finding{Victim: known.Block, AllocStack: known.AllocStack, FreeStack: known.FreeStack, Uses: known.Uses,
			Allocated: known.Allocated, Freed: known.Freed, Origin: known.AllocSpan}, false
	}
	return core.Finding{Victim: b}, s.Guard.IsCanary(b.ID)
}

// lease is the id under which a stream is leased, or was last.
func (s Stack) lease(stream driver.Stream) (core.StreamID, bool) {
	if s.Streams == nil {
		return 0, false
	}
	return s.Streams.LeaseOf(stream)
}

// suspect names the launches of a finding, the likeliest first. If nothing orders two accesses,
// either may lack a wait. The likelier one does what its launch does not declare. A declared access
// need not be at fault in a finding about a free or an allocation.
func (s Stack) suspect(found *core.Finding, f sim.Finding, culprit sim.Party) {
	parties := []sim.Party{culprit}
	if f.Kind == sim.Race && !f.First.Guard && !f.Other.Guard {
		parties = []sim.Party{f.First, f.Other}
		if f.First.Declared && !f.Other.Declared {
			slices.Reverse(parties)
		}
	}
	for _, p := range parties {
		u, known := s.recordOf(p, found.Time)
		if !known {
			found.MoreSuspects = true
			continue
		}
		if u.LaunchID == 0 || !slices.ContainsFunc(found.Suspects,
			func(of core.UseRecord) bool { return of.LaunchID == u.LaunchID }) {
			found.Suspects = append(found.Suspects, u)
		}
	}
	switch f.Kind {
	case sim.FreeRace, sim.UseBeforeAlloc:
		found.MoreSuspects = found.MoreSuspects || culprit.Declared
	}
	found.MoreSuspects = found.MoreSuspects && len(found.Suspects) > 0
	found.CallStack = parties[0].Work.Stack()
}

// recordOf is the launch that an operation is work of; of work outside every launch it has the
// operation's name.
func (s Stack) recordOf(p sim.Party, now time.Time) (u core.UseRecord, known bool) {
	if p.Work != nil {
		u = p.Work.Launch
	}
	known = u.LaunchID != 0
	if !known {
		u.Stream, known = s.lease(p.Stream)
		u.Time = now
	}
	u.Launch, u.Access = cmp.Or(u.Launch, p.Op), p.Access
	return u, known
}

// streamName is a stream as everything else names it. One that was never leased
// has no other name than the driver's.
func (s Stack) streamName(stream driver.Stream) string {
	if id, ok := s.lease(stream); ok {
		return id.String()
	}
	return "0x" + strconv.FormatUint(uint64(stream), 16) + " (never leased)"
}

// watched says what a race between the program and the guard is. The guard looks
// at what no program may touch: red zones, and blocks that were freed. So the race
// is the program's late or stray access, which the guard may or may not find by its
// bytes; the guard's kernel only noticed it. It returns the
// program's side. A race between two accesses of the guard's, or of the guard
// with an allocation or a free, stays what it is: that would be the guard's own.
func (s Stack) watched(found *core.Finding, f sim.Finding, canary bool) sim.Party {
	culprit, own := f.First, f.Other
	if own.Access == 0 || culprit.Access == 0 {
		return f.First
	}
	if culprit.Guard {
		culprit, own = own, culprit
	}
	at := max(culprit.Ptr, own.Ptr)
	found.Offset = int64(at - found.Victim.ID.Ptr)
	var what string
	switch b := found.Victim; {
	case canary && culprit.Access.Writes():
		found.Kind, what = names.FindingStrayWrite, "touches memory that has no owner"
	case !canary && at < b.ID.Ptr:
		found.Kind, what = names.FindingUnderflow, fmt.Sprintf("is out of bounds, %d bytes before the block", b.ID.Ptr-at)
	case !canary && at-b.ID.Ptr >= b.Bytes:
		found.Kind, what = names.FindingOutOfBoundsWrite, fmt.Sprintf("is out of bounds, at %d bytes behind the end of the block", at-b.ID.Ptr-b.Bytes)
	case b.State == core.Live && culprit.Access.Writes():
		found.Kind, what = names.FindingSealedWrite, "writes a block that was declared read-only"
	case culprit.Access.Writes():
		found.Kind, what = names.FindingUseAfterFreeWrite, "is not ordered before the free of the block, whose bytes the guard watches since"
	default:
		found.Kind, what = names.FindingUseAfterFreeRead, "is not ordered before the free of the block, whose bytes the guard watches since"
	}
	found.Text = fmt.Sprintf("the device's oracle: %s (%s at offset %d) on stream %s %s; generation %s tagged %q, %d bytes",
		culprit.Op, culprit.Access, found.Offset, s.streamName(culprit.Stream), what, found.Victim.ID.Generation, found.Victim.Tag, found.Victim.Requested)
	if where := culprit.Work.Where(); where != "" {
		found.Text += "; " + culprit.Op + " was enqueued " + where
	}
	return culprit
}

func oracleKind(f sim.Finding) core.FindingKind {
	switch f.Kind {
	case sim.Race, sim.FreeRace:
		return names.FindingMissingFence
	case sim.UseBeforeAlloc:
		return names.FindingUseBeforeAlloc
	case sim.UseAfterFree:
		return lateKind(f)
	case sim.IllegalAddress: // of a block that is gone, over the bound of one that is not, or of none
		if isGone(f) {
			return lateKind(f)
		}
		return outsideKind(f)
	case sim.Undeclared:
		return names.FindingUndeclaredAccess
	case sim.OutOfBounds:
		return outsideKind(f)
	}
	return ""
}

func lateKind(f sim.Finding) core.FindingKind {
	if f.First.Access.Writes() {
		return names.FindingUseAfterFreeWrite
	}
	return names.FindingUseAfterFreeRead
}

func outsideKind(f sim.Finding) core.FindingKind {
	if f.First.Ptr < f.BlockPtr {
		return names.FindingUnderflow
	}
	if f.First.Access.Writes() {
		return names.FindingOutOfBoundsWrite
	}
	return names.FindingOutOfBoundsRead
}

// isLate reports whether the finding is about a block that is gone.
func isLate(f sim.Finding) bool { return f.Kind == sim.UseAfterFree || isGone(f) }

// isGone reports whether the finding is of a fault where a block was once.
func isGone(f sim.Finding) bool { return f.Kind == sim.IllegalAddress && f.Other.Op != "" }
