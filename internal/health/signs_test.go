package health

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

const hold = 5 * time.Minute

// watched is the rules under a clock of the test's.
type watched struct {
	t     *testing.T
	rules *Rules
	now   Reading
	at    time.Time
}

func watch(t *testing.T) *watched {
	return &watched{t: t, rules: NewRules(hold), at: time.Unix(1_700_000_000, 0)}
}

// pass lets a time pass, with a look each second, and returns the reasons seen
// at its end.
func (w *watched) pass(d time.Duration) (reasons []string) {
	for end := w.at.Add(d); w.at.Before(end); {
		w.at = w.at.Add(time.Second)
		reasons = nil
		for _, s := range w.rules.Look(w.now, w.at) {
			reasons = append(reasons, s.Reason)
		}
	}
	return reasons
}

func (w *watched) want(got []string, want ...string) {
	w.t.Helper()
	if !slices.Equal(got, want) {
		w.t.Errorf("the reasons are %v, want %v", got, want)
	}
}

// Whatever is seen once holds for the hold and a look, and no longer.
func TestAReasonHoldsForItsTimeAfterItWasLastSeen(t *testing.T) {
	for reason, cause := range map[string]func(*Reading){
		names.HealthFindings:      func(r *Reading) { r.Findings++ },
		names.HealthGuardGaps:     func(r *Reading) { r.Unguarded++; r.Guarding = true },
		names.HealthTelemetryLoss: func(r *Reading) { r.Lost++ },
		names.HealthLedgerDrift:   func(r *Reading) { r.Underflows++ },
		names.HealthRefusalStorm:  func(r *Reading) { r.Refusals += 10; r.Requests += 1000 },
	} {
		w := watch(t)
		w.want(w.pass(time.Minute))
		cause(&w.now)
		w.want(w.pass(time.Second), reason)
		if reason != names.HealthRefusalStorm { // which is seen again while its ten seconds last
			w.want(w.pass(hold), reason)
			w.want(w.pass(time.Second))
		}
		cause(&w.now)
		w.want(w.pass(hold), reason)
		cause(&w.now)
		w.want(w.pass(hold), reason)
		w.want(w.pass(stormTime + time.Second))
	}
}

// Something that comes and goes every few seconds changes the state once.
func TestHealthDoesNotFlap(t *testing.T) {
	w := watch(t)
	changes, before := 0, 0
	for i := range 600 {
		if i%7 == 0 {
			w.now.Lost++
		}
		n := len(w.pass(time.Second))
		if n != before {
			changes++
		}
		before = n
	}
	if changes != 1 || before != 1 {
		t.Errorf("%d changes in ten minutes, now %d reasons: want 1 and 1", changes, before)
	}
}

func TestLevelsMustLast(t *testing.T) {
	for reason, c := range map[string]struct {
		set   func(*Reading, bool)
		lasts time.Duration
	}{
		names.HealthLedgerDrift:      {func(r *Reading, on bool) { r.Drift = map[bool]int64{true: -1}[on] }, driftTime},
		names.HealthStreamsExhausted: {func(r *Reading, on bool) { r.Waiting = map[bool]int{true: 3}[on] }, waitTime},
		names.HealthMemoryLimit:      {func(r *Reading, on bool) { r.Exhausted = map[bool]string{true: "dmem.max"}[on] }, limitTime},
	} {
		w := watch(t)
		for range 5 { // never for long enough
			c.set(&w.now, true)
			w.want(w.pass(c.lasts))
			c.set(&w.now, false)
			w.want(w.pass(time.Second))
		}
		c.set(&w.now, true)
		w.want(w.pass(c.lasts+time.Second), reason)
		c.set(&w.now, false)
		w.want(w.pass(hold), reason)
		w.want(w.pass(time.Second))
	}
}

func TestMoreHeldThanMayBeMustLast(t *testing.T) {
	w := watch(t)
	for range 3 {
		w.now.Beyond = 2 << 20
		w.want(w.pass(beyondTime))
		w.now.Beyond = 0
		w.want(w.pass(time.Second))
	}
	w.now.Beyond = 2 << 20
	w.want(w.pass(beyondTime+time.Second), names.HealthMemoryLimit)
	for st, want := range map[core.Stats]uint64{
		{Reserved: 5, Isolated: 4}:               0,
		{Reserved: 5, Isolated: 4, HeldLimit: 9}: 0,
		{Reserved: 5, Isolated: 4, HeldLimit: 7}: 2,
	} {
		if got := beyond(&st); got != want {
			t.Errorf("%+v: %d bytes beyond, want %d", st, got, want)
		}
	}
}

func TestPoisonedBlocksHoldForAsLongAsThereAreAny(t *testing.T) {
	w := watch(t)
	w.now.Poisoned = 2
	w.want(w.pass(3*hold), names.HealthPoisonedBlocks)
}

// A service at its limit refuses a few, and a busy one a small share.
func TestAFewRefusalsAreNoStorm(t *testing.T) {
	w := watch(t)
	for range 60 {
		w.now.Refusals += 9
		w.now.Requests += 9
		w.want(w.pass(stormTime))
	}
	w = watch(t)
	for range 600 {
		w.now.Refusals += 9
		w.now.Requests += 1000
		w.want(w.pass(time.Second))
	}
	w.now.Refusals += 10
	w.now.Requests += 10
	w.want(w.pass(stormTime), names.HealthRefusalStorm)
}

// What a guard that is turned off leaves undone is nobody's loss, then or later.
func TestAGuardThatIsTurnedOffHasNoGaps(t *testing.T) {
	w := watch(t)
	w.now.Guarding = true
	w.pass(time.Second)
	w.now.Guarding, w.now.Unguarded = false, 7
	w.want(w.pass(time.Minute))
	w.now.Guarding = true
	w.want(w.pass(time.Minute))
}

func TestReasonsComeGravestFirstAndSayWhatAndSince(t *testing.T) {
	w := watch(t)
	w.now.Lost = 1
	w.pass(time.Second)
	began := w.at
	w.now.Lost, w.now.Findings, w.now.Poisoned = 5, 1, 1
	w.want(w.pass(time.Second), names.HealthPoisonedBlocks, names.HealthFindings, names.HealthTelemetryLoss)
	signs := w.rules.Look(w.now, w.at)
	if text := textOf(signs); text != "poisoned_blocks: 1 block could not be fenced; findings: 1 finding; telemetry_loss: 5 records, incidents or spans lost" {
		t.Error(text)
	}
	if loss := signs[2]; !loss.Since.Equal(began) {
		t.Errorf("lost since %v, want %v", loss.Since, began)
	}
}

// Every reason that the rules can give is one that is known, so that it has a
// place in the order and a series.
func TestEveryReasonIsKnown(t *testing.T) {
	w := watch(t)
	w.pass(time.Second)
	w.now = Reading{Findings: 1, Requests: 10, Refusals: 10, Underflows: 1, Unguarded: 1, Lost: 1, Poisoned: 1, Drift: 1, Waiting: 1, Exhausted: "dmem.max", Guarding: true}
	got := append([]string{names.HealthStickyError}, w.pass(2*driftTime)...)
	if want := names.HealthReasons[:]; !slices.Equal(got, want) {
		t.Errorf("the reasons are %v, want %v", got, want)
	}
	for _, reason := range got {
		if strings.ToLower(reason) != reason || strings.ContainsAny(reason, " -") {
			t.Errorf("%q is no label", reason)
		}
	}
}

// A device that is lost at the moment of a look is no finding, and surely not
// one less than none.
func TestALostDeviceIsNoFindingWhenever(t *testing.T) {
	findings := telemetry.NewFindings(telemetry.FindingsConfig{})
	var reporting sync.WaitGroup
	reporting.Go(func() {
		for range 300_000 {
			findings.Report(core.Finding{Kind: names.FindingStickyError})
		}
	})
	done := make(chan struct{})
	go func() { reporting.Wait(); close(done) }()
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		default:
		}
		if n := Degrading(findings); n != 0 {
			t.Fatalf("%d findings", n)
		}
	}
	findings.Report(core.Finding{Kind: names.FindingLeak})
	findings.Report(core.Finding{Kind: names.FindingDoubleFree})
	if n := Degrading(findings); n != 2 {
		t.Errorf("%d findings, want 2", n)
	}
}

// A note holds while it is seen, since it was first seen, and gives no reason.
func TestNotesHoldWhileTheyAreSeenAndGiveNoReason(t *testing.T) {
	for name, cause := range map[string]func(r *Reading, n int){
		names.HealthNoteWaiting:  func(r *Reading, n int) { r.JobsWaiting = n },
		names.HealthNoteLearning: func(r *Reading, n int) { r.JobsLearning = n },
	} {
		w := watch(t)
		began := w.at
		before := 0
		for _, n := range []int{0, 1, 5, 0, 2} {
			cause(&w.now, n)
			if before == 0 {
				began = w.at
			}
			before = n
			reasons, notes := w.rules.Look(w.now, w.at), w.rules.Notes()
			if len(reasons) != 0 || len(notes) != min(n, 1) {
				t.Errorf("%s of %d: the reasons are %v, the notes %v", name, n, reasons, notes)
			} else if n > 0 && (notes[0].Reason != name || !notes[0].Since.Equal(began) || !strings.Contains(notes[0].Text,
				fmt.Sprint(n))) {
				t.Errorf("%s of %d since %v: the note is %+v", name, n, began, notes[0])
			}
			w.at = w.at.Add(time.Minute)
		}
	}
}
