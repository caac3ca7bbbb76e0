package core_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
)

func TestFindingTellsTheWholeStory(t *testing.T) {
	use := func(id uint64, name string, access core.Access) core.UseRecord {
		return core.UseRecord{LaunchID: id, Launch: name, Stream: 2, Access: access}
	}
	f := core.Finding{
		Kind: names.FindingOutOfBoundsWrite, Text: "8 bytes behind the block changed",
		Victim:     core.Block{ID: core.BlockID{Ptr: 0x500, Generation: 7}, Requested: 100, Tag: "sort.keys"},
		Suspects:   []core.UseRecord{use(12, "scatter", core.Write)},
		Uses:       []core.UseRecord{use(11, "histogram", core.Read)},
		AllocStack: core.CaptureStack(0), FreeStack: core.CaptureStack(0),
	}
	want := regexp.MustCompile(`(?s)^oob-write: 8 bytes behind the block changed
  victim: tag "sort\.keys" generation #7, 100 bytes at 0x500
  culprit: launch 12 "scatter" on stream 2 \(write\)
  used by: launch 11 "histogram" on stream 2 \(read\)
  allocated at:
    \S+TestFindingTellsTheWholeStory \S+finding_test\.go:\d+\n.*
  freed at:
    \S+TestFindingTellsTheWholeStory \S+finding_test\.go:\d+`)
	if !want.MatchString(f.String()) {
		t.Errorf("the finding reads\n%s", f)
	}
}

func TestOneLaunchIsTheCulpritAndSeveralAreSuspects(t *testing.T) {
	f := core.Finding{Kind: names.FindingOutOfBoundsWrite, Suspects: make([]core.UseRecord, 1)}
	mustBe(t, "the only one", f.Suspicion(0), "culprit")
	f.MoreSuspects = true
	mustBe(t, "one of unknown others", f.Suspicion(0), "suspect 1 of 1 or more")
	f.Suspects, f.MoreSuspects = make([]core.UseRecord, 8), false
	mustBe(t, "the last of eight", f.Suspicion(7), "suspect 8 of 8")
	lost := core.Finding{Kind: names.FindingStickyError, Suspects: make([]core.UseRecord, 1)}
	mustBe(t, "what ran when the device was lost", lost.Suspicion(0), "in flight")
}

func TestFindingWithoutAVictimIsOneLine(t *testing.T) {
	f := core.Finding{Kind: names.FindingStickyError, Text: "the device is gone"}
	mustBe(t, "text", f.String(), "sticky-error: the device is gone")
}

//go:noinline
func captured(skip int) core.Stack { return core.CaptureStack(skip) }

func TestStackStartsAtTheCaller(t *testing.T) {
	own, caller := captured(0).Lines(), captured(1).Lines()
	mustBe(t, "whether no frame was skipped", strings.Contains(own[0], "core_test.captured "), true)
	mustBe(t, "whether one frame was skipped", strings.Contains(caller[0], "TestStackStartsAtTheCaller "), true)
	mustBe(t, "number of lines of no stack", len(core.Stack(nil).Lines()), 0)
}

func TestDeepStackIsCut(t *testing.T) {
	var deep func(n int) core.Stack
	deep = func(n int) core.Stack {
		if n == 0 {
			return core.CaptureStack(0)
		}
		return deep(n - 1)
	}
	mustBe(t, "number of frames", len(deep(100)), 32)
}
