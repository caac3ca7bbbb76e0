// Package health says how well a runtime is: ok, or degraded, with the reasons;
// that it is closed or its device lost is known elsewhere, and added to.
//
// [Rules] turn numbers into reasons: a [Reading] a second, and from two of them
// what happened between. A [Watch] takes the readings, keeps the reasons where they
// are read without a lock, and tells of each change. docs/operate.md says when each
// reason begins and ends.
package health

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
)

// DefaultHold is how long a reason holds after it was last seen: longer than any usual
// scrape interval and alert delay.
const DefaultHold = 5 * time.Minute

// Config says what a [Watch] reads and whom it tells.
type Config struct {
	// Hold is how long a reason holds after it was last seen.
	Hold time.Duration
	// Read reads the runtime's numbers, once a second. It makes no device call.
	Read func() Reading
	// State is the health of the runtime without reasons: ok, poisoned or closed.
	State func() core.Health
	// Lost, if not nil, counts what was lost of the telemetry outside the runtime.
	// What was lost before Start is not counted.
	Lost func() uint64
	// OnStorm is called when a storm of refusals begins.
	OnStorm func()
	// OnHealth and Logger, if not nil, are told of each change.
	OnHealth func(core.Health)
	Logger   *slog.Logger
}

// Watch looks at a runtime's numbers once a second, and at once when a
// finding is reported, and tells of every change. One goroutine looks; others
// read the reasons that it stored.
type Watch struct {
	cfg   Config
	signs atomic.Pointer[[]core.HealthSign]
	notes atomic.Pointer[[]core.HealthSign]
	// lost is what Config.Lost last said.
	lost uint64

	soon chan struct{} // holds one signal
	stop chan struct{}
	done chan struct{}
}

// New returns a watch that looks at nothing before Start.
func New(cfg Config) *Watch {
	cfg.Logger = usercode.Logger(cfg.Logger)
	return &Watch{cfg: cfg, soon: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
}

// Health is the runtime's health with the reasons and notes of the last look. It takes no
// lock.
func (w *Watch) Health() core.Health {
	h := w.cfg.State()
	signs := w.signs.Load()
	if notes := w.notes.Load(); notes != nil && h.OK {
		h.Notes = *notes
	}
	switch {
	case signs == nil || len(*signs) == 0 || h.State == names.HealthClosed:
	case h.State == names.HealthPoisoned:
		h.Signs = append(h.Signs[:1:1], *signs...)
	default:
		h.State, h.Signs, h.Reason = names.HealthDegraded, *signs, textOf(*signs)
	}
	return h
}

func textOf(signs []core.HealthSign) string {
	texts := make([]string, len(signs))
	for i, s := range signs {
		texts[i] = s.Reason + ": " + s.Text
	}
	return strings.Join(texts, "; ")
}

// LookSoon makes the watch look without waiting for its next tick. It does not block.
func (w *Watch) LookSoon() {
	select {
	case w.soon <- struct{}{}:
	default: // it will look
	}
}

// Start begins to look. It is called once.
func (w *Watch) Start() {
	rules := NewRules(w.cfg.Hold)
	if w.cfg.Lost != nil {
		usercode.Call(telemetryLost, func() { rules.last.Lost = w.cfg.Lost() })
	}
	before := core.Health{OK: true} // which need not be told
	usercode.Go("the watch of health", func() { w.run(rules, &before) }, func() { close(w.done) })
}

// Stop makes the watch look for the last time. It does not wait for that; see
// Wait.
func (w *Watch) Stop() { close(w.stop) }

// Wait waits until the last change was told, or ctx ends.
func (w *Watch) Wait(ctx context.Context) error {
	if err := deadline.Await(ctx, w.done); err != nil {
		return fmt.Errorf("the watch of health does not end, because Config.OnHealth, Config.TelemetryLost or the logger does not return: %w", err)
	}
	return nil
}

func (w *Watch) run(rules *Rules, before *core.Health) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for ended := false; !ended; {
		select {
		case <-ticker.C:
		case <-w.soon:
		case <-w.stop:
			ended = true
		}
		signs := rules.Look(w.read(), time.Now())
		notes := rules.Notes()
		w.signs.Store(&signs)
		w.notes.Store(&notes)
		if now := w.Health(); differs(*before, now) {
			storm := has(now, names.HealthRefusalStorm) && !has(*before, names.HealthRefusalStorm)
			*before = now
			if storm {
				w.cfg.OnStorm()
			}
			w.tell(now)
		}
	}
}

func (w *Watch) read() Reading {
	now := w.cfg.Read()
	if w.cfg.Lost != nil {
		usercode.Call(telemetryLost, func() { w.lost = w.cfg.Lost() })
		now.Lost += w.lost
	}
	return now
}

const telemetryLost = "Config.TelemetryLost"

// differs reports whether b must be told after a. Notes come and go with the load: they are shown,
// and not told.
func differs(a, b core.Health) bool {
	return a.State != b.State || !slices.EqualFunc(a.Signs, b.Signs, func(x, y core.HealthSign) bool { return x.Reason == y.Reason })
}

func has(h core.Health, reason string) bool {
	return slices.ContainsFunc(h.Signs, func(s core.HealthSign) bool { return s.Reason == reason })
}

var levels = map[string]slog.Level{
	names.HealthOK: slog.LevelInfo, names.HealthDegraded: slog.LevelWarn, names.HealthClosed: slog.LevelInfo, names.HealthPoisoned: slog.LevelError,
}

func (w *Watch) tell(h core.Health) {
	if w.cfg.Logger != nil {
		reasons := make([]string, len(h.Signs))
		for i, s := range h.Signs {
			reasons[i] = s.Reason
		}
		w.cfg.Logger.LogAttrs(context.Background(), levels[h.State], "gpu memory health: "+h.State,
			slog.String("state", h.State), slog.Any("reasons", reasons), slog.String("reason", h.Reason))
	}
	if w.cfg.OnHealth != nil {
		usercode.Call("Config.OnHealth", func() { w.cfg.OnHealth(h) })
	}
}
