package fencepost

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// watched is the rules under a clock of the test's.
type watched struct {
	t     *testing.T
	rules *healthSigns
	now   healthReading
	at    time.Time
}

func watch(t *testing.T) *watched {
	return &watched{t: t, rules: newHealthSigns(DefaultHealthHold), at: time.Unix(1_700_000_000, 0)}
}

// pass lets a time pass, with a look each second, and returns the reasons seen
// at its end.
func (w *watched) pass(d time.Duration) (reasons []core.HealthReason) {
	for end := w.at.Add(d); w.at.Before(end); {
		w.at = w.at.Add(time.Second)
		reasons = nil
		for _, s := range w.rules.look(w.now, w.at) {
			reasons = append(reasons, s.Reason)
		}
	}
	return reasons
}

func (w *watched) want(got []core.HealthReason, want ...core.HealthReason) {
	w.t.Helper()
	if !slices.Equal(got, want) {
		w.t.Errorf("the reasons are %v, want %v", got, want)
	}
}

// Whatever is seen once holds for the hold and a look, and no longer.
func TestAReasonHoldsForItsTimeAfterItWasLastSeen(t *testing.T) {
	for reason, cause := range map[core.HealthReason]func(*healthReading){
		core.HealthFindings:      func(r *healthReading) { r.findings++ },
		core.HealthGuardGaps:     func(r *healthReading) { r.unguarded++; r.guarding = true },
		core.HealthTelemetryLoss: func(r *healthReading) { r.lost++ },
		core.HealthLedgerDrift:   func(r *healthReading) { r.underflows++ },
		core.HealthRefusalStorm:  func(r *healthReading) { r.refusals += 10; r.requests += 1000 },
	} {
		w := watch(t)
		w.want(w.pass(time.Minute))
		cause(&w.now)
		w.want(w.pass(time.Second), reason)
		if reason != core.HealthRefusalStorm { // which is seen again while its ten seconds last
			w.want(w.pass(DefaultHealthHold), reason)
			w.want(w.pass(time.Second))
		}
		cause(&w.now)
		w.want(w.pass(DefaultHealthHold), reason)
		cause(&w.now)
		w.want(w.pass(DefaultHealthHold), reason)
		w.want(w.pass(stormTime + time.Second))
	}
}

// Something that comes and goes every few seconds changes the state once.
func TestHealthDoesNotFlap(t *testing.T) {
	w := watch(t)
	changes, before := 0, 0
	for i := range 600 {
		if i%7 == 0 {
			w.now.lost++
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
	for reason, c := range map[core.HealthReason]struct {
		set   func(*healthReading, bool)
		lasts time.Duration
	}{
		core.HealthLedgerDrift:      {func(r *healthReading, on bool) { r.drift = map[bool]int64{true: -1}[on] }, driftTime},
		core.HealthStreamsExhausted: {func(r *healthReading, on bool) { r.waiting = map[bool]int{true: 3}[on] }, waitTime},
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
		w.want(w.pass(DefaultHealthHold), reason)
		w.want(w.pass(time.Second))
	}
}

func TestPoisonedBlocksHoldForAsLongAsThereAreAny(t *testing.T) {
	w := watch(t)
	w.now.poisoned = 2
	w.want(w.pass(3*DefaultHealthHold), core.HealthPoisonedBlocks)
}

// A service at its limit refuses a few, and a busy one a small share.
func TestAFewRefusalsAreNoStorm(t *testing.T) {
	w := watch(t)
	for range 60 {
		w.now.refusals += 9
		w.now.requests += 9
		w.want(w.pass(stormTime))
	}
	w = watch(t)
	for range 600 {
		w.now.refusals += 9
		w.now.requests += 1000
		w.want(w.pass(time.Second))
	}
	w.now.refusals += 10
	w.now.requests += 10
	w.want(w.pass(stormTime), core.HealthRefusalStorm)
}

// What a guard that is turned off leaves undone is nobody's loss, then or later.
func TestAGuardThatIsTurnedOffHasNoGaps(t *testing.T) {
	w := watch(t)
	w.now.guarding = true
	w.pass(time.Second)
	w.now.guarding, w.now.unguarded = false, 7
	w.want(w.pass(time.Minute))
	w.now.guarding = true
	w.want(w.pass(time.Minute))
}

// Nor is what a guard leaves undone that is turned down to its ledger.
func TestAGuardThatIsTurnedDownHasNoGaps(t *testing.T) {
	r, err := open(t.Context(), Config{Device: Sim, Guard: "hunt"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Allocate(t.Context(), core.Request{Bytes: 4096})
	if err != nil {
		t.Fatal(err)
	}
	rules, ledger := newHealthSigns(DefaultHealthHold), "ledger"
	rules.look(r.readHealth(), time.Now())
	if err := r.SwitchGuard(t.Context(), GuardChange{Mode: &ledger}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Deallocate(t.Context(), b.ID); err != nil {
		t.Fatal(err)
	}
	if r.guard.GuardStats().Unchecked == 0 {
		t.Error("nothing was left undone, so nothing was tested")
	}
	if signs := rules.look(r.readHealth(), time.Now()); len(signs) != 0 {
		t.Errorf("%+v", signs)
	}
	if _, err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestReasonsComeGravestFirstAndSayWhatAndSince(t *testing.T) {
	w := watch(t)
	w.now.lost = 1
	w.pass(time.Second)
	began := w.at
	w.now.lost, w.now.findings, w.now.poisoned = 5, 1, 1
	w.want(w.pass(time.Second), core.HealthPoisonedBlocks, core.HealthFindings, core.HealthTelemetryLoss)
	signs := w.rules.look(w.now, w.at)
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
	w.now = healthReading{findings: 1, requests: 10, refusals: 10, underflows: 1, unguarded: 1, lost: 1, poisoned: 1, drift: 1, waiting: 1, guarding: true}
	got := append([]core.HealthReason{core.HealthStickyError}, w.pass(2*driftTime)...)
	if want := core.HealthReasons(); !slices.Equal(got, want) {
		t.Errorf("the reasons are %v, want %v", got, want)
	}
	for _, reason := range got {
		if strings.ToLower(string(reason)) != string(reason) || strings.ContainsAny(string(reason), " -") {
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
			findings.Report(core.Finding{Kind: core.FindingStickyError})
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
		if n := degrading(findings); n != 0 {
			t.Fatalf("%d findings", n)
		}
	}
	findings.Report(core.Finding{Kind: core.FindingLeak})
	findings.Report(core.Finding{Kind: core.FindingDoubleFree})
	if n := degrading(findings); n != 2 {
		t.Errorf("%d findings, want 2", n)
	}
}
