package fencepost

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/telemetry/dump"
)

// healthWatch looks at a runtime's numbers once a second, and at once when a
// finding is reported, and tells of every change. One goroutine looks; others
// read signs.
type healthWatch struct {
	signs    atomic.Pointer[[]core.HealthSign]
	lost     func() uint64
	onHealth func(core.Health)
	logger   *slog.Logger
	hold     time.Duration

	found chan struct{} // holds one signal
	stop  chan struct{}
	done  chan struct{}
}

func newHealthWatch(cfg Config) *healthWatch {
	return &healthWatch{lost: cfg.TelemetryLost, onHealth: cfg.OnHealth, logger: cfg.Findings.Logger, hold: cfg.HealthHold,
		found: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
}

// lookSoon makes the watch look at once. It does not block.
func (w *healthWatch) lookSoon() {
	select {
	case w.found <- struct{}{}:
	default: // it will look
	}
}

// watchHealth is the last step of Open, so that it is told to end first. It is
// waited for last: a callback that hangs must not take the time in which the
// device is given back.
func (r *Runtime) watchHealth(Config) error {
	w, rules := r.health, newHealthSigns(r.health.hold)
	if w.lost != nil {
		rules.last.lost = w.lost() // before there was this runtime
	}
	go w.run(r, rules)
	r.undo = slices.Insert(r.undo, 0, closeWriter(w.ended))
	r.onClose(func(context.Context) error { close(w.stop); return nil })
	return nil
}

// ended waits until the last change was told, or ctx ends.
func (w *healthWatch) ended(ctx context.Context) error {
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the watch of health does not end, because Config.OnHealth, Config.TelemetryLost or the logger does not return: %w", ctx.Err())
	}
}

func (w *healthWatch) run(r *Runtime, rules *healthSigns) {
	defer close(w.done)
	ticker := time.NewTicker(healthInterval)
	defer ticker.Stop()
	var told core.Health
	told.OK = true // which nobody needs to be told
	for ended := false; !ended; {
		select {
		case <-ticker.C:
		case <-w.found:
		case <-w.stop:
			ended = true
		}
		signs := rules.look(r.readHealth(), time.Now())
		w.signs.Store(&signs)
		if now := r.Health(); differs(told, now) {
			if r.dumps != nil && has(now, core.HealthRefusalStorm) && !has(told, core.HealthRefusalStorm) {
				r.dumps.Trigger(dump.Refusals)
			}
			w.tell(now)
			told = now
		}
	}
}

// differs reports whether somebody who knows a should be told of b.
func differs(a, b core.Health) bool {
	return a.State != b.State || !slices.EqualFunc(a.Signs, b.Signs, func(x, y core.HealthSign) bool { return x.Reason == y.Reason })
}

func has(h core.Health, reason core.HealthReason) bool {
	return slices.ContainsFunc(h.Signs, func(s core.HealthSign) bool { return s.Reason == reason })
}

var healthLevels = map[core.HealthState]slog.Level{
	core.HealthOK: slog.LevelInfo, core.HealthDegraded: slog.LevelWarn, core.HealthClosed: slog.LevelInfo, core.HealthPoisoned: slog.LevelError,
}

func (w *healthWatch) tell(h core.Health) {
	if w.logger != nil {
		reasons := make([]string, len(h.Signs))
		for i, s := range h.Signs {
			reasons[i] = string(s.Reason)
		}
		w.logger.LogAttrs(context.Background(), healthLevels[h.State], "gpu memory health: "+h.State.String(),
			slog.String("state", h.State.String()), slog.Any("reasons", reasons), slog.String("reason", h.Reason))
	}
	if w.onHealth != nil {
		w.onHealth(h)
	}
}
