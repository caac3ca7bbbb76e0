package core_test

import (
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

func preflighted(t *testing.T, rt *core.Runtime, memory core.Tracked) *core.LaunchRecorder {
	t.Helper()
	rec := core.NewStrictRecorder(1).Named("kernel")
	succeed(t, "write", rec.Write(memory))
	succeed(t, "preflight", rec.Preflight(t.Context(), rt))
	return rec
}

func TestRecorderKnowsItsLaunch(t *testing.T) {
	seen := new(watched)
	rt := seen.runtime(t)
	rec := preflighted(t, rt, alloc(t, rt, 64))
	mustBe(t, "stream", rec.LaunchStream(), core.StreamID(1))
	mustBe(t, "name of the launch", seen.request.Launch, "kernel")
	mustBe(t, "stream of the launch", seen.request.Stream, core.StreamID(1))
	mustBe(t, "whether preflight waits for other launches", seen.request.Wait, false)
	succeed(t, "abort", rec.Abort(t.Context(), rt))
}

// A caller that was handed a recorder can ask its mode before it records memory that the mode
// decides about.
func TestTheModeOfARecorderSaysWhatItDoesWithUntrackedMemory(t *testing.T) {
	for _, rec := range []*core.LaunchRecorder{core.NewStrictRecorder(1), core.NewPermissiveRecorder(1)} {
		rt, _, _ := fakeRuntime(t)
		b := alloc(t, rt, 64)
		mode := rec.Mode()
		refused := func(what string, err error) {
			t.Helper()
			if mode == core.Permissive {
				succeed(t, what, err)
			} else {
				misuse(t, what, err, "untracked buffer rejected")
			}
		}
		for _, record := range []func(core.Tracked) error{rec.Read, rec.Write, rec.ReadWrite} {
			succeed(t, "memory without bytes", record(empty))
			succeed(t, "tracked memory", record(b))
			refused("untracked memory", record(legacy))
		}
		mustBe(t, "recorded count", rec.RecordedCount(), 3)
		refused("preflight", rec.Preflight(t.Context(), rt))
		refused("commit", rec.Commit(t.Context(), rt))
		mustBe(t, "whether the launch is recorded", rt.Stats().Launches == 1, mode == core.Permissive)
		mustBe(t, "the mode after the end", rec.Mode(), mode)
		if mode == core.Strict {
			succeed(t, "abort", rec.Abort(t.Context(), rt))
		}
	}
	mustBe(t, "the mode of a strict recorder", core.NewStrictRecorder(1).Mode(), core.Strict)
	mustBe(t, "the mode of a permissive recorder", core.NewPermissiveRecorder(1).Mode(), core.Permissive)
	for mode, want := range map[core.RecorderMode]string{core.Strict: "strict", core.Permissive: "permissive",
		0: "mode(0)"} {
		mustBe(t, "the name", mode.String(), want)
	}
}

func TestRecorderRefusesASecondPreflight(t *testing.T) {
	rt, _, _ := fakeRuntime(t)
	rec := preflighted(t, rt, alloc(t, rt, 64))
	misuse(t, "second preflight", rec.Preflight(t.Context(), rt), "called again")
	mustBe(t, "open intents", rt.Stats().OpenIntents, uint64(1))
	succeed(t, "commit", rec.Commit(t.Context(), rt))
	misuse(t, "preflight after commit", rec.Preflight(t.Context(), rt), "the recorder was ended")
	misuse(t, "use after commit", rec.Read(legacy), "recorded after preflight")
}

func TestRecorderRepeatsAFailedPreflight(t *testing.T) {
	rt, fake, _ := fakeRuntime(t)
	b := alloc(t, rt, 64)
	down := errors.New("driver hiccup")
	fake.FailNext("PrepareUse", down)
	rec := core.NewStrictRecorder(1)
	succeed(t, "read", rec.Read(b))
	if err := rec.Preflight(t.Context(), rt); !errors.Is(err, down) {
		t.Fatalf("preflight: got %v, want %v", err, down)
	}
	mustBe(t, "open intents after the failure", rt.Stats().OpenIntents, uint64(0))
	succeed(t, "one more use after the failure", rec.Write(b))
	succeed(t, "preflight again", rec.Preflight(t.Context(), rt))
	succeed(t, "commit", rec.Commit(t.Context(), rt))
}

func TestAbortedRecorderLeavesNoTrace(t *testing.T) {
	rt, _, _ := fakeRuntime(t)
	b := alloc(t, rt, 64)

	t.Run("after preflight", func(t *testing.T) {
		rec := preflighted(t, rt, b)
		succeed(t, "abort", rec.Abort(t.Context(), rt))
		misuse(t, "second abort", rec.Abort(t.Context(), rt), "ended before")
		misuse(t, "commit after abort", rec.Commit(t.Context(), rt), "ended before")
		mustBe(t, "open intents", rt.Stats().OpenIntents, uint64(0))
		mustBe(t, "aborts", rt.Stats().Aborts, uint64(1))
		mustBe(t, "launches", rt.Stats().Launches, uint64(0))
	})
	t.Run("before preflight", func(t *testing.T) {
		rec := core.NewStrictRecorder(1)
		succeed(t, "read", rec.Read(b))
		succeed(t, "abort", rec.Abort(t.Context(), rt))
		mustBe(t, "aborts", rt.Stats().Aborts, uint64(1))
	})
	t.Run("after a late use", func(t *testing.T) {
		rec := preflighted(t, rt, b)
		misuse(t, "late use", rec.Read(b), "recorded after preflight")
		succeed(t, "abort", rec.Abort(t.Context(), rt))
	})
}

func TestRecorderKeepsItsTicketWhenEndedElsewhere(t *testing.T) {
	rt, _, _ := fakeRuntime(t)
	other, _, _ := fakeRuntime(t)
	rec := preflighted(t, rt, alloc(t, rt, 64))
	misuse(t, "commit on another runtime", rec.Commit(t.Context(), other), "another runtime")
	misuse(t, "abort on another runtime", rec.Abort(t.Context(), other), "another runtime")
	mustBe(t, "open intents", rt.Stats().OpenIntents, uint64(1))
	succeed(t, "commit where it was preflighted", rec.Commit(t.Context(), rt))
	mustBe(t, "launches", rt.Stats().Launches, uint64(1))
}

func TestRecorderJoinsALateUseAndAFailedFinish(t *testing.T) {
	rt, fake, _ := fakeRuntime(t)
	rec := preflighted(t, rt, alloc(t, rt, 64))
	late := rec.Read(legacy)
	broken := errors.New("event not recorded")
	fake.FailNext("FinishUse", broken)
	err := rec.Commit(t.Context(), rt)
	if !errors.Is(err, broken) || !errors.Is(err, late) {
		t.Errorf("commit: got %v, want both %v and %v", err, broken, late)
	}
	misuse(t, "commit again", rec.Commit(t.Context(), rt), "ended before")
}

func TestRecorderRefusesAConflictByName(t *testing.T) {
	rt, _, _ := fakeRuntime(t)
	b := alloc(t, rt, 64)
	holder := preflighted(t, rt, b)
	rec := core.NewStrictRecorder(2).Named("late")
	succeed(t, "read", rec.Read(b))
	err := rec.Preflight(t.Context(), rt)
	misuse(t, "preflight against an open launch", err, `held by launch "kernel" on stream 1 for write`)
	succeed(t, "commit of the holder", holder.Commit(t.Context(), rt))
	succeed(t, "preflight after it", rec.Preflight(t.Context(), rt))
	succeed(t, "commit", rec.Commit(t.Context(), rt))
}

func TestRecorderReadsAndWrites(t *testing.T) {
	seen := new(watched)
	rt := seen.runtime(t)
	rec := core.NewStrictRecorder(1)
	succeed(t, "read and write", rec.ReadWrite(alloc(t, rt, 64)))
	misuse(t, "read and write of legacy memory", rec.ReadWrite(legacy), "LaunchRecorder.ReadWrite: untracked buffer rejected")
	succeed(t, "abort", rec.Abort(t.Context(), rt))

	rec = core.NewPermissiveRecorder(1)
	succeed(t, "read and write", rec.ReadWrite(alloc(t, rt, 64)))
	succeed(t, "preflight", rec.Preflight(t.Context(), rt))
	mustBe(t, "prepared access", seen.uses[0].Access, core.ReadWrite)
	succeed(t, "commit", rec.Commit(t.Context(), rt))
}
