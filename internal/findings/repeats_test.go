package findings

import (
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

func about(kind core.FindingKind, g core.Generation) core.Finding {
	return core.Finding{Kind: kind, Victim: core.Block{ID: core.BlockID{Ptr: 0x1000, Generation: g}, Bytes: 0x1000}}
}

// late is what an oracle tells of an operation that touches a block after its free.
func late(number uint64) (translated, sim.Finding) {
	who := sim.Party{Op: "memset", Stream: 7, Number: number, Access: core.Write, Ptr: 0x1000, Bytes: 8}
	return translated{about(names.FindingUseAfterFreeWrite, 5), who, 9}, sim.Finding{Kind: sim.UseAfterFree, First: who}
}

func TestTheSecondToSeeABugDoesNotTellItAgain(t *testing.T) {
	oracles := func(r *repeats, number uint64) bool { return !r.seenByGuard(late(number)) }
	var first, second repeats
	if !oracles(&first, 1) || oracles(&first, 1) || !oracles(&first, 2) {
		t.Error("of an operation the oracle tells once what it did with a block, and of another one too")
	}
	for kind, want := range map[core.FindingKind]bool{names.FindingUseAfterFreeWrite: false, names.FindingUseAfterFreeRead: false,
		names.FindingOutOfBoundsWrite: true, names.FindingMissingFence: true} {
		if got := !first.seenByOracle(about(kind, 5)); got != want {
			t.Errorf("the guard's %s of the block that the oracle saw written late is news: %v", kind, got)
		}
	}
	if first.seenByOracle(about(names.FindingUseAfterFreeWrite, 6)) {
		t.Error("a bug of another block was left out")
	}
	for range 2 {
		if second.seenByOracle(about(names.FindingUseAfterFreeWrite, 5)) {
			t.Error("what the guard says twice is its own affair")
		}
	}
	if oracles(&second, 1) {
		t.Error("the oracle repeats what the guard said")
	}
}

func TestDamageWhereAnOverrunWentIsThatOverrun(t *testing.T) {
	var seen repeats
	over := sim.Party{Op: "memset", Stream: 7, Number: 1, Access: core.Write, Ptr: 0x2000, Bytes: 0x100}
	seen.seenByGuard(translated{about(names.FindingOutOfBoundsWrite, 5), over, 9}, sim.Finding{Kind: sim.OutOfBounds, First: over})
	damage := func(g core.Generation, offset int64) core.Finding {
		f := about(names.FindingUnderflow, g)
		f.BadBytes, f.Offset = 4, offset
		return f
	}
	if !seen.seenByOracle(damage(8, 0x1040)) {
		t.Error("the neighbour's damage was told as a bug of its own")
	}
	if seen.seenByOracle(damage(8, 0x1100)) || seen.seenByOracle(damage(10, 0x1040)) {
		t.Error("damage elsewhere, or of a block that came later, was left out")
	}
}

// A program must not hear that it races with the guard's kernels, and the guard's
// own mistakes must not vanish.
func TestOnlyARaceWithTheProgramIsTheProgramsFault(t *testing.T) {
	write := sim.Party{Op: "memset", Stream: 7, Number: 1, Access: core.Write, Ptr: 0x1000, Bytes: 8}
	own := sim.Party{Op: "fencepost_verify", Stream: 8, Number: 1, Guard: true, Access: core.Read, Ptr: 0x1000, Bytes: 8}
	freed := []core.Block{{ID: core.BlockID{Ptr: 0x1000, Generation: 5}, Bytes: 0x1000, State: core.Freed}}
	for name, c := range map[string]struct {
		finding sim.Finding
		want    core.FindingKind
	}{
		"the program and the guard": {sim.Finding{Kind: sim.Race, First: write, Other: own}, names.FindingUseAfterFreeWrite},
		"the guard and the program": {sim.Finding{Kind: sim.Race, First: own, Other: write}, names.FindingUseAfterFreeWrite},
		"the guard and itself":      {sim.Finding{Kind: sim.Race, First: own, Other: own}, names.FindingMissingFence},
		"the guard and a free":      {sim.Finding{Kind: sim.FreeRace, First: own, Other: sim.Party{Op: "free", Stream: 8}}, names.FindingMissingFence},
	} {
		var got []core.Finding
		r := New(Config{Collection: telemetry.NewFindings(telemetry.FindingsConfig{}), LookAtHealth: func() {},
			OnFinding: func(f core.Finding) { got = append(got, f) },
			Stack:     func() (Stack, bool) { return Stack{Released: slices.Values(freed)}, true }})
		c.finding.BlockPtr, c.finding.BlockBytes = 0x1000, 0x1000
		r.FromOracle(c.finding)
		if len(got) != 1 || got[0].Kind != c.want || c.want == names.FindingUseAfterFreeWrite && strings.Contains(got[0].Text, own.Op) {
			t.Errorf("%s: told %v, want %s", name, got, c.want)
		}
	}
}
