package fencepost

import (
	"fmt"
	"strconv"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

// oracleSource is the source of the oracle's findings.
const oracleSource = "sim-oracle"

// translate takes a finding of the simulated device.
func (t *oracleTranslator) translate(f sim.Finding) {
	kind := oracleKind(f)
	if kind == "" {
		return // the runtime reports the lost context itself
	}
	victim, newest := t.blockAt(f)
	if f.Kind == sim.IllegalAddress && victim.ID.Generation == 0 {
		return // an address that was nobody's: nothing to add to that report
	}
	found, canary := t.owned(victim)
	found.Kind, found.Source, found.Time = kind, oracleSource, time.Now()
	found.Text = "the device's oracle: " + f.Describe(t.streamName)
	culprit := f.First
	if f.Kind == sim.FreeRace && !culprit.Guard && found.Victim.Bytes < victim.Bytes {
		found.Kind = lateKind(f) // between red zones: the device's free is the guard's, long after the owner's
	}
	if f.First.Guard != f.Other.Guard && f.Kind == sim.Race {
		culprit = t.raceWithGuard(&found, f, canary)
	}
	if id, ok := t.lease(culprit.Stream); ok {
		found.Suspects = []core.UseRecord{{Launch: culprit.Op, Stream: id, Access: culprit.Access, Time: found.Time}}
	}
	if t.told.oracles(found, f, culprit, newest) {
		t.sink.Report(found)
	}
}

// owned begins a finding about a block as its owner knows it, without the red
// zones that the device sees. canary is set for one of the guard's own.
func (t *oracleTranslator) owned(b core.Block) (f core.Finding, canary bool) {
	t.mu.Lock()
	guard := t.guard
	t.mu.Unlock()
	if guard == nil || b.ID.Generation == 0 {
		return core.Finding{Victim: b}, false
	}
	if known, ok := guard.Remember(b.ID); ok {
		return core.Finding{Victim: known.Block, AllocStack: known.AllocStack, FreeStack: known.FreeStack, Uses: known.Uses}, false
	}
	return core.Finding{Victim: b}, guard.IsCanary(b.ID)
}

// lease is the id under which a stream is leased, or was last.
func (t *oracleTranslator) lease(s driver.Stream) (core.StreamID, bool) {
	t.mu.Lock()
	streams := t.streams
	t.mu.Unlock()
	if streams == nil {
		return 0, false
	}
	return streams.LeaseOf(s)
}

// streamName is a stream as everything else names it. One that was never leased
// has no other name than the driver's.
func (t *oracleTranslator) streamName(s driver.Stream) string {
	if id, ok := t.lease(s); ok {
		return id.String()
	}
	return "0x" + strconv.FormatUint(uint64(s), 16) + " (never leased)"
}

// raceWithGuard says what a race between the program and the guard is. The guard looks
// at what no program may touch: red zones, and blocks that were freed. So the race
// is the program's late or stray access, which the guard may or may not find by its
// bytes; to accuse the guard's kernel would be to accuse the instrument that saw the bug. It returns the
// program's side. A race between two accesses of the guard's, or of the guard
// with an allocation or a free, stays what it is: that would be the guard's own.
func (t *oracleTranslator) raceWithGuard(found *core.Finding, f sim.Finding, canary bool) sim.Party {
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
		found.Kind, what = core.FindingStrayWrite, "touches memory that nobody has"
	case !canary && at < b.ID.Ptr:
		found.Kind, what = core.FindingUnderflow, fmt.Sprintf("is out of bounds, %d bytes before the block", b.ID.Ptr-at)
	case !canary && at-b.ID.Ptr >= b.Bytes:
		found.Kind, what = core.FindingOutOfBoundsWrite, fmt.Sprintf("is out of bounds, at %d bytes behind the end of the block", at-b.ID.Ptr-b.Bytes)
	case b.State == core.Live && culprit.Access.Writes():
		found.Kind, what = core.FindingSealedWrite, "writes a block that was declared read-only"
	case culprit.Access.Writes():
		found.Kind, what = core.FindingUseAfterFreeWrite, "is not ordered before the free of the block, whose bytes the guard watches since"
	default:
		found.Kind, what = core.FindingUseAfterFreeRead, "is not ordered before the free of the block, whose bytes the guard watches since"
	}
	found.Text = fmt.Sprintf("the device's oracle: %s (%s at offset %d) on stream %s %s; generation %s tagged %q, %d bytes",
		culprit.Op, culprit.Access, found.Offset, t.streamName(culprit.Stream), what, found.Victim.ID.Generation, found.Victim.Tag, found.Victim.Requested)
	return culprit
}

func oracleKind(f sim.Finding) core.FindingKind {
	switch f.Kind {
	case sim.Race, sim.FreeRace:
		return core.FindingMissingFence
	case sim.UseBeforeAlloc:
		return core.FindingUseBeforeAlloc
	case sim.UseAfterFree:
		return lateKind(f)
	case sim.IllegalAddress: // of a block that is gone, over the bound of one that is not, or of none
		if isGone(f) {
			return lateKind(f)
		}
		return outsideKind(f)
	case sim.Undeclared:
		return core.FindingUndeclaredAccess
	case sim.OutOfBounds:
		return outsideKind(f)
	}
	return ""
}

func lateKind(f sim.Finding) core.FindingKind {
	if f.First.Access.Writes() {
		return core.FindingUseAfterFreeWrite
	}
	return core.FindingUseAfterFreeRead
}

func outsideKind(f sim.Finding) core.FindingKind {
	if f.First.Ptr < f.BlockPtr {
		return core.FindingUnderflow
	}
	return core.FindingOutOfBoundsWrite
}
