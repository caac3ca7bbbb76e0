package fencepost

import (
	"fmt"
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// The rules of degraded health. A reason that has been seen is held for
// DefaultHealthHold after it was last seen, so that no state changes more often.
const (
	// healthInterval is how often the numbers are looked at.
	healthInterval = time.Second
	// DefaultHealthHold is five minutes: longer than any usual scrape interval
	// and alert delay.
	DefaultHealthHold = 5 * time.Minute
	// A refusal storm is stormRefusals refused requests, and one of stormShare
	// of all, within stormTime. Requests larger than the budget are not among
	// those refused: no client makes a runtime ill by asking for too much.
	stormTime     = 10 * time.Second
	stormRefusals = 10
	stormShare    = 100
	// driftTime and waitTime are how long a drift, and callers waiting for a
	// stream, must be seen without a break.
	driftTime = time.Minute
	waitTime  = 5 * time.Second
)

// healthSigns turns readings into reasons. It belongs to one goroutine.
type healthSigns struct {
	hold time.Duration
	last healthReading
	// storm is the reading that refusals are counted from, at stormFrom.
	storm     healthReading
	stormFrom time.Time
	// driftFrom and waitFrom are since when there is one; zero if there is
	// none.
	driftFrom, waitFrom time.Time
	held                map[core.HealthReason]*heldSign
}

// heldSign is a reason that was seen, count the events of it since it began.
type heldSign struct {
	sign  core.HealthSign
	last  time.Time
	count uint64
}

func newHealthSigns(hold time.Duration) *healthSigns {
	return &healthSigns{hold: hold, held: map[core.HealthReason]*heldSign{}}
}

// look takes a reading and returns the reasons that hold, gravest first.
func (s *healthSigns) look(now healthReading, at time.Time) []core.HealthSign {
	s.lookAtCounts(now, at)
	s.lookAtLevels(now, at)
	s.lookAtRefusals(now, at)
	s.last = now
	return s.holding(at)
}

func (s *healthSigns) lookAtCounts(now healthReading, at time.Time) {
	for _, c := range []struct {
		reason    core.HealthReason
		was, is   uint64
		applies   bool
		one, many string
	}{
		{core.HealthFindings, s.last.findings, now.findings, true, "finding", "findings"},
		{core.HealthGuardGaps, s.last.unguarded, now.unguarded, now.guarding, "block not guarded or not checked", "blocks not guarded or not checked"},
		{core.HealthTelemetryLoss, s.last.lost, now.lost, true, "record, incident or span lost", "records, incidents or spans lost"},
		{core.HealthLedgerDrift, s.last.underflows, now.underflows, true, "byte counter taken below zero", "byte counters taken below zero"},
	} {
		if c.applies && c.is > c.was {
			held := s.seen(c.reason, at)
			held.count += c.is - c.was
			held.sign.Text = plural(held.count, c.one, c.many)
		}
	}
}

func (s *healthSigns) lookAtLevels(now healthReading, at time.Time) {
	if now.poisoned > 0 {
		s.seen(core.HealthPoisonedBlocks, at).sign.Text = plural(now.poisoned, "block could not be fenced", "blocks could not be fenced")
	}
	if lasts(&s.driftFrom, now.drift != 0, at, driftTime) {
		s.seen(core.HealthLedgerDrift, at).sign.Text = fmt.Sprintf("the books less the driver's pool are %d bytes", now.drift)
	}
	if lasts(&s.waitFrom, now.waiting > 0, at, waitTime) {
		s.seen(core.HealthStreamsExhausted, at).sign.Text = fmt.Sprintf("every stream is leased, and %s", plural(uint64(now.waiting), "caller waits", "callers wait"))
	}
}

// lasts reports whether what is has been so for d, of which from keeps the
// beginning.
func lasts(from *time.Time, is bool, at time.Time, d time.Duration) bool {
	switch {
	case !is:
		*from = time.Time{}
	case from.IsZero():
		*from = at
	}
	return is && at.Sub(*from) >= d
}

func (s *healthSigns) lookAtRefusals(now healthReading, at time.Time) {
	refused, asked := now.refusals-s.storm.refusals, now.requests-s.storm.requests
	if refused >= stormRefusals && refused*stormShare >= asked {
		s.seen(core.HealthRefusalStorm, at).sign.Text = fmt.Sprintf("%d of %d requests refused within %v", refused, asked, stormTime)
	}
	if at.Sub(s.stormFrom) >= stormTime {
		s.storm, s.stormFrom = now, at
	}
}

func (s *healthSigns) seen(reason core.HealthReason, at time.Time) *heldSign {
	held := s.held[reason]
	if held == nil {
		held = &heldSign{sign: core.HealthSign{Reason: reason, Since: at}}
		s.held[reason] = held
	}
	held.last = at
	return held
}

func (s *healthSigns) holding(at time.Time) []core.HealthSign {
	var signs []core.HealthSign
	for reason, held := range s.held {
		if at.Sub(held.last) > s.hold {
			delete(s.held, reason)
			continue
		}
		signs = append(signs, held.sign)
	}
	gravity := core.HealthReasons()
	slices.SortFunc(signs, func(a, b core.HealthSign) int {
		return slices.Index(gravity, a.Reason) - slices.Index(gravity, b.Reason)
	})
	return signs
}
