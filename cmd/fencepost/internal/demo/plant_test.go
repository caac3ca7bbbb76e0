package demo

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func planted(kind core.FindingKind, done bool) *Plant {
	p, _ := NewPlant(string(kind))
	p.note(core.Block{ID: core.BlockID{Generation: 7}, Tag: "inject"})
	p.done = done
	return p
}

// A finding counts only if it names the kind, the tag and the generation: the
// demo does not take another bug for the planted one.
func TestOnlyAFindingOfTheVictimCounts(t *testing.T) {
	of := func(kind core.FindingKind, generation core.Generation, tag core.Tag) core.Finding {
		return core.Finding{Kind: kind, Source: "somebody", Victim: core.Block{ID: core.BlockID{Generation: generation}, Tag: tag}}
	}
	for name, c := range map[string]struct {
		finding core.Finding
		found   bool
	}{
		"the victim":         {of(names.FindingLeak, 7, "inject"), true},
		"another kind":       {of(names.FindingDoubleFree, 7, "inject"), false},
		"another generation": {of(names.FindingLeak, 8, "inject"), false},
		"another tag":        {of(names.FindingLeak, 7, "other"), false},
	} {
		p := planted(names.FindingLeak, true)
		p.Watch(c.finding)
		got := p.Judge()
		if got.Found != c.found || c.found != (got.Why == "seen by somebody") {
			t.Errorf("a finding of %s: %+v", name, got)
		}
	}
}

func TestAJudgementSaysWhyNothingWasSeen(t *testing.T) {
	for kind, want := range map[core.FindingKind]string{
		names.FindingUseAfterFreeRead: "a read changes no byte",
		names.FindingUnderflow:        "a write in front of the block is seen where the block lies between red zones",
		names.FindingDoubleFree:       "a second free is refused in every tier",
	} {
		if got := planted(kind, true).Judge(); !strings.Contains(got.Why, want) {
			t.Errorf("%s: %+v", kind, got)
		}
	}
	if got := planted(names.FindingUseAfterFreeRead, false).Judge(); !strings.Contains(got.Why, "raise --for") {
		t.Errorf("%+v", got)
	}
}

// A driver that refuses the late access has seen it only where a hunt took the memory away;
// elsewhere a call is refused for other reasons.
func TestADriversRefusalCountsWhereAHuntUnmaps(t *testing.T) {
	late := func(unmaps bool, refused error) *Planted {
		p := planted(names.FindingUseAfterFreeWrite, true)
		p.unmaps = unmaps
		p.answered(refused)
		return p.Judge()
	}
	invalid := &core.DriverError{Op: "cuMemsetD8Async", Code: driver.InvalidValue}
	if got := late(true, fmt.Errorf("late: %w", invalid)); !got.Found || got.Refused == "" {
		t.Errorf("refused for an address off the map: %+v", got)
	}
	for _, got := range []*Planted{late(false, invalid), late(true, nil),
		late(true, &core.DriverError{Code: driver.IllegalAddress})} {
		if got.Found || got.Why == "" {
			t.Errorf("%+v", got)
		}
	}
	if late(true, nil).Why == late(false, nil).Why {
		t.Error("a hunt that unmaps has the advice of those that compare bytes")
	}
}

// On a GPU there is no oracle, and the judgement says where there is one.
func TestAJudgementOnAGPUNamesTheSimulatedDevice(t *testing.T) {
	for kind, want := range map[core.FindingKind]bool{names.FindingMissingFence: true, names.FindingUseBeforeAlloc: true,
		names.FindingUseAfterFreeRead: true, names.FindingOutOfBoundsRead: true, names.FindingUnderflow: false,
		names.FindingLeak: false} {
		p := planted(kind, true)
		p.onGPU = true
		if got := p.Judge(); strings.Contains(got.Why, "--device=sim") != want {
			t.Errorf("%s: %s", kind, got.Why)
		}
	}
}

func TestTheWatchIsBounded(t *testing.T) {
	p := planted(names.FindingLeak, true)
	for range 3 * maxWatched {
		p.Watch(core.Finding{Kind: names.FindingLeak})
	}
	if len(p.found) != maxWatched {
		t.Errorf("%d findings are kept", len(p.found))
	}
}

// seenBy says who must see each kind, by the mode of the guard; if that is
// nobody, the report must say why.
var seenBy = map[core.FindingKind]map[string]string{
	// the first of them tells
	names.FindingUseAfterFreeWrite: {"sample:65536": "debugguard or sim-oracle", "off": "sim-oracle",
		"hunt:unmap": "the driver"},
	names.FindingUseAfterFreeRead: {"sample:65536": "sim-oracle", "off": "sim-oracle"},
	names.FindingOutOfBoundsRead:  {"sample:65536": "sim-oracle", "off": "sim-oracle or none"}, // by what lies there
	names.FindingOutOfBoundsWrite: {"sample:65536": "sim-oracle", "off": "sim-oracle or none"}, // by what lies there
	names.FindingUnderflow:        {"sample:65536": "sim-oracle", "off": "sim-oracle or none"},
	names.FindingDoubleFree:       {"sample:65536": "debugguard", "ledger": "debugguard", "off": "none"},
	names.FindingForeignFree:      {"sample:65536": "debugguard", "ledger": "debugguard", "off": "none"},
	names.FindingStaleHandle:      {"sample:65536": "debugguard", "ledger": "debugguard", "off": "none"},
	names.FindingMissingFence:     {"sample:65536": "sim-oracle", "off": "sim-oracle"},
	names.FindingUseBeforeAlloc:   {"sample:65536": "sim-oracle", "off": "sim-oracle"},
	names.FindingLeak:             {"sample:65536": "runtime", "off": "runtime"},
	names.FindingOutOfMemory:      {"sample:65536": "runtime", "off": "runtime"},
	names.FindingStickyError:      {"sample:65536": "runtime", "off": "runtime"},
}

// It takes some 12 seconds with the race detector: a demo runs for each bug under each mode
// of the guard.
func TestEachPlantedBugIsSeenByWhoCanSeeIt(t *testing.T) {
	for _, kind := range Kinds() {
		for guard, source := range seenBy[core.FindingKind(kind)] {
			t.Run(kind+"/"+guard, func(t *testing.T) {
				seen := func(r *Report) bool {
					return strings.HasSuffix(source, "none") || r.Planted != nil && r.Planted.Found
				}
				r := runUntil(t, seen, kind, guard, nil)
				p := r.Planted
				if p == nil || p.Why == "" {
					t.Fatalf("the judgement is %+v", p)
				}
				who := "none"
				if p.Found {
					who = strings.TrimPrefix(p.Why, "seen by ")
				}
				if strings.HasPrefix(p.Why, "refused by the driver at the call") {
					who = "the driver"
				}
				if !slices.Contains(strings.Split(source, " or "), who) {
					t.Errorf("want it seen by %s: %+v; findings %v", source, p, r.Findings)
				}
				if r.Wrong != 0 {
					t.Errorf("the bug spoilt %d results of others", r.Wrong)
				}
			})
		}
	}
}

// A launch wrote after the free, and the guard's finding suspects it first of all that ran.
func TestTheLaunchThatWritesAfterTheFreeIsSuspectedFirst(t *testing.T) {
	plant, err := NewPlant(names.FindingUseAfterFreeWrite)
	must.Do(t, err)
	rt, err := fencepost.Open(t.Context(), fencepost.Config{Driver: e2e.Blind(t), Guard: "hunt", OnFinding: plant.Watch})
	must.Do(t, err)
	plant.rt = rt
	must.Do(t, plant.Do(t.Context()))
	err = plant.onStream(t.Context(), func(on *cuda.Lease) error {
		b, err := plant.allocateOn(t.Context(), on)
		for range 20 {
			err = errors.Join(err, plant.use(t.Context(), b, on))
		}
		return errors.Join(err, plant.giveBack(t.Context(), []core.Block{b}))
	})
	must.Do(t, errors.Join(err, rt.Drain(t.Context())))
	if len(plant.found) != 1 || plant.found[0].Source != "debugguard" || plant.found[0].Suspects[0].Launch != "inject.late" {
		t.Errorf("found %v", plant.found)
	}
	if _, err := rt.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// An overrun hits a block of the plant's own if there is one, and else stays where it may.
func TestAnOverrunLooksForANeighbourOfItsOwn(t *testing.T) {
	block := func(ptr uint64) core.Block { return core.Block{ID: core.BlockID{Ptr: ptr}, Requested: 100, Bytes: 256} }
	behind := func(b core.Block) uint64 { return b.ID.Ptr + b.Requested }
	front := func(b core.Block) uint64 { return b.ID.Ptr - 16 }
	apart := []core.Block{block(1000), block(3000), block(2000)}
	if got := besideAnother(apart, behind); got != apart[1] {
		t.Errorf("of blocks that lie apart: %v", got.ID)
	}
	touching := slices.Concat(apart, []core.Block{block(2100)})
	if got := besideAnother(touching, behind); got.ID.Ptr != 2000 {
		t.Errorf("behind it lies another: got %v", got.ID)
	}
	if got := besideAnother(touching, front); got.ID.Ptr != 2100 {
		t.Errorf("in front of it lies another: got %v", got.ID)
	}
}
