package history_test

import (
	"slices"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/history"
)

func TestASnapshotHoldsWhatIsHeldAndWhatHappened(t *testing.T) {
	rt, source := open(t, hunting())
	if _, err := rt.Allocate(t.Context(), core.Request{Bytes: 1 << 50, Tag: "huge"}); err == nil {
		t.Fatal("a petabyte was allocated")
	}
	s := streams(t, rt, 2)
	kept, freed := allocate(t, rt, 3<<20, s[0], "index"), allocate(t, rt, 5000, s[1], "keys")
	launch(t, rt, "fill", s[1], core.Write, kept, freed)
	free(t, rt, freed)
	report := checkSnapshot(t, export(t, source, history.PyTorch))
	stats := rt.Stats()
	if len(report.Broken) > 0 || report.Allocated != stats.Live.Bytes || report.Active != stats.Outstanding().Bytes || stats.Quarantined.Bytes == 0 {
		t.Errorf("%+v, and the books say %+v", report, stats)
	}
	if len(report.Actions) != 1 || report.Actions[0]["alloc"] != 2 || report.Actions[0]["oom"] == 0 || report.Actions[0]["snapshot"] != 1 {
		t.Errorf("actions %v", report.Actions)
	}
	if report.Frames < 4 {
		t.Errorf("the deepest stack has %d frames", report.Frames)
	}
	if want := []string{"huge", "index", "keys", "unknown"}; !slices.Equal(report.Categories, want) {
		t.Errorf("categories %q, want %q", report.Categories, want)
	}
	free(t, rt, kept)
}

func TestASnapshotOfARingThatHasLostItsBeginningIsWhole(t *testing.T) {
	rt, source := open(t, fencepost.Config{History: 64, Guard: "off"})
	s := streams(t, rt, 3)
	var memory []core.Block
	for i := range 400 {
		b := allocate(t, rt, uint64(1+i)*512, s[i%3], "tables")
		launch(t, rt, "load", s[(i+1)%3], core.Write, b)
		if memory = append(memory, b); len(memory) > 10 {
			free(t, rt, memory[0])
			memory = memory[1:]
		}
	}
	must.Do(t, rt.Drain(t.Context()))
	report := checkSnapshot(t, export(t, source, history.PyTorch))
	if len(report.Broken) > 0 || report.Allocated != rt.Stats().Live.Bytes || report.Active != report.Allocated {
		t.Errorf("%+v, and the books say %+v", report, rt.Stats())
	}
	if got := readTrace(t, export(t, source, history.Perfetto)).last(); got["live bytes"] != rt.Stats().Live.Bytes || got["pending bytes"] != 0 {
		t.Errorf("the counters end at %v, the books at %+v", got, rt.Stats())
	}
	free(t, rt, memory...)
}

func TestMemoryThatIsPassedOnInStreamOrderIsFreedBeforeItIsAllocated(t *testing.T) {
	rt, source := open(t, fencepost.Config{Guard: "off", Resource: fencepost.Async}) // the own pool releases at once
	l := must.Get(rt.Streams().Acquire(t.Context(), "test"))(t)
	defer func() { _ = l.Release() }()
	first := allocate(t, rt, 4096, l.ID(), "first")
	release := must.Get(rt.Driver().(*sim.Device).Hold(l.Handle()))(t) // no release is known
	defer release()
	free(t, rt, first)
	second := allocate(t, rt, 4096, l.ID(), "second")
	if second.ID.Ptr != first.ID.Ptr {
		t.Fatalf("the device did not pass the memory on: %v and %v", first.ID, second.ID)
	}
	if slices.ContainsFunc(source.Events(), func(e oplog.Event) bool { return e.Op == oplog.OpRelease }) {
		t.Fatal("the release is known")
	}
	report := checkSnapshot(t, export(t, source, history.PyTorch))
	if len(report.Broken) > 0 || report.Actions[0]["free_completed"] != 1 || report.Allocated != 4096 {
		t.Errorf("%+v", report)
	}
	free(t, rt, second)
	release()
}

func TestDevicesHaveTracesOfTheirOwn(t *testing.T) {
	events := []oplog.Event{
		{Op: oplog.OpAllocate, Ordinal: 2, Block: core.BlockID{Ptr: 4 << 20, Generation: 1, Ordinal: 2}, Bytes: 100, Tag: "a"},
		{Op: oplog.OpAllocate, Ordinal: 0, Block: core.BlockID{Ptr: 4 << 20, Generation: 2}, Bytes: 200, Tag: "b"},
	}
	source := history.Source{Events: func() []oplog.Event { return events }}
	report := checkSnapshot(t, export(t, source, history.PyTorch))
	if len(report.Broken) > 0 || len(report.Actions) != 3 || report.Actions[0]["alloc"] != 1 || len(report.Actions[1]) != 0 || report.Actions[2]["alloc"] != 1 || report.Segments != 2 {
		t.Errorf("%+v", report)
	}
	f := readTrace(t, export(t, source, history.Perfetto))
	pids := map[int]bool{}
	for _, e := range f.entries {
		pids[e.PID] = true
	}
	if len(pids) != 2 || !pids[1] || !pids[3] {
		t.Errorf("processes %v", pids)
	}
}

func TestAnEmptyHistoryIsReadToo(t *testing.T) {
	source := history.Source{Events: func() []oplog.Event { return nil }}
	if report := checkSnapshot(t, export(t, source, history.PyTorch)); len(report.Broken) > 0 || report.Segments != 0 {
		t.Errorf("%+v", report)
	}
	if f := readTrace(t, export(t, source, history.Perfetto)); len(f.entries) != 0 {
		t.Errorf("%v", f.entries)
	}
}
