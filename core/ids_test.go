package core_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

func TestAccessIsALattice(t *testing.T) {
	all := []core.Access{core.Read, core.Write, core.ReadWrite}
	for _, a := range all {
		mustBe(t, "join with itself", a.Combine(a), a)
		mustBe(t, "join with the top", a.Combine(core.ReadWrite), core.ReadWrite)
		for _, b := range all {
			join := a.Combine(b)
			mustBe(t, "commuted join", b.Combine(a), join)
			if join.Reads() != (a.Reads() || b.Reads()) || join.Writes() != (a.Writes() || b.Writes()) {
				t.Errorf("%v combined with %v is %v", a, b, join)
			}
			mustBe(t, "conflict of "+a.String()+" and "+b.String(), a.Conflicts(b), a != core.Read || b != core.Read)
			for _, c := range all {
				mustBe(t, "associated join", a.Combine(b).Combine(c), a.Combine(b.Combine(c)))
			}
		}
	}
	mustBe(t, "read combined with write", core.Read.Combine(core.Write), core.ReadWrite)
}

func TestAccessProperties(t *testing.T) {
	for _, c := range []struct {
		access               core.Access
		reads, writes, valid bool
		text                 string
	}{
		{core.Read, true, false, true, "read"},
		{core.Write, false, true, true, "write"},
		{core.ReadWrite, true, true, true, "read_write"},
		{0, false, false, false, "access(0)"},
		{4, false, false, false, "access(4)"},
		{core.Read | 8, true, false, false, "access(9)"},
	} {
		got := [3]bool{c.access.Reads(), c.access.Writes(), c.access.Valid()}
		mustBe(t, c.text+": reads, writes, valid", got, [3]bool{c.reads, c.writes, c.valid})
		mustBe(t, "name", c.access.String(), c.text)
	}
}

func TestGenerationsAreUniqueUnderConcurrency(t *testing.T) {
	const goroutines, each = 8, 2000
	drawn := make([][]core.Generation, goroutines)
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			for range each {
				drawn[i] = append(drawn[i], core.NextGeneration())
			}
		})
	}
	wg.Wait()
	for i := range drawn {
		if !slices.IsSorted(drawn[i]) {
			t.Errorf("the generations of goroutine %d do not increase", i)
		}
	}
	all := slices.Sorted(slices.Values(slices.Concat(drawn...)))
	mustBe(t, "number of distinct generations", len(slices.Compact(all)), goroutines*each)
	if all[0] == 0 {
		t.Error("generation zero was given out")
	}
	if next := core.NextGeneration(); next <= all[len(all)-1] {
		t.Errorf("generation %v came after %v", next, all[len(all)-1])
	}
}

func TestNames(t *testing.T) {
	id := core.BlockID{Ptr: 0x7f00, Generation: 12, AllocStream: 3, Ordinal: 1}
	for want, got := range map[string]string{
		"default":                     core.DefaultStream.String(),
		"7":                           core.StreamID(7).String(),
		"#12":                         core.Generation(12).String(),
		"0x7f00#12@1":                 id.String(),
		"live":                        core.Live.String(),
		"retired":                     core.Retired.String(),
		"quarantined":                 core.Quarantined.String(),
		"freed":                       core.Freed.String(),
		"state(9)":                    core.BlockState(9).String(),
		"untagged":                    string(core.Tag("").OrUntagged()),
		"sort":                        string(core.Tag("sort").OrUntagged()),
		"none":                        core.Features(0).String(),
		"use-tracking+stream-ordered": (core.UseTracking | core.StreamOrdered).String(),
		"reservations+device-checks":  (core.Reservations | core.DeviceChecks).String(),
	} {
		mustBe(t, "name", got, want)
	}
}

func TestFeaturesHaveAllOrNot(t *testing.T) {
	f := core.UseTracking | core.Reservations
	mustBe(t, "has one of its own", f.Has(core.UseTracking), true)
	mustBe(t, "has both of its own", f.Has(core.UseTracking|core.Reservations), true)
	mustBe(t, "has one of its own and another", f.Has(core.UseTracking|core.StreamOrdered), false)
	mustBe(t, "has nothing at all", f.Has(0), true)
}

func TestBlocksAndIDsAreTracked(t *testing.T) {
	id := core.BlockID{Ptr: 1, Generation: 2}
	mustBe(t, "block of an id", id.BlockID(), id)
	mustBe(t, "block of a block", core.Block{ID: id}.BlockID(), id)
}

func TestSpanRefKnowsNothing(t *testing.T) {
	mustBe(t, "zero reference", core.SpanRef{}.IsZero(), true)
	mustBe(t, "reference with a span", core.SpanRef{SpanID: [8]byte{1}}.IsZero(), false)
	mustBe(t, "reference with a trace", core.SpanRef{TraceID: [16]byte{15: 1}}.IsZero(), false)
}

func TestAmountsStopAtZero(t *testing.T) {
	a := core.Amount{Bytes: 10, Requested: 8, Blocks: 1}
	b := core.Amount{Bytes: 4, Requested: 9, Blocks: 1}
	mustBe(t, "sum", a.Add(b), core.Amount{Bytes: 14, Requested: 17, Blocks: 2})
	mustBe(t, "difference", a.Sub(b), core.Amount{Bytes: 6, Requested: 0, Blocks: 0})
	s := core.Stats{Live: a, Pending: b, Quarantined: a}
	mustBe(t, "outstanding", s.Outstanding(), core.Amount{Bytes: 24, Requested: 25, Blocks: 3})
}
