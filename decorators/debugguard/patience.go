package debugguard

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/internal/deadline"
)

// stall is how long work of another goroutine may make no step while a call waits for it. Such work
// calls the program's code (layers, sinks, span processors, listeners), which may itself make the
// call that waits.
const stall = 2 * deadline.LastMoment

// progress counts the steps of work that other goroutines may wait for. The zero progress is ready.
// It is safe for concurrent use.
type progress struct {
	steps atomic.Uint64
	// stalled is one more than the steps at which a wait was given up: no other call waits for that
	// step.
	stalled atomic.Uint64
}

func (p *progress) step() { p.steps.Add(1) }

// await asks done until that is true. It gives up, and returns false, if ctx ends, or if no step is
// made for [stall].
func (p *progress) await(ctx context.Context, done func() bool) bool {
	if done() {
		return true
	}
	pause, at, since := 2*time.Microsecond, p.steps.Load(), time.Now()
	for p.stalled.Load() != at+1 {
		select {
		case <-ctx.Done():
			return done()
		case <-time.After(pause):
		}
		if done() {
			return true
		}
		if now := p.steps.Load(); now != at {
			at, since = now, time.Now()
		} else if time.Since(since) > stall {
			p.stalled.Store(at + 1)
		}
		pause = min(2*pause, time.Millisecond)
	}
	return done()
}

// turn is held by the goroutine that lets blocks go. It is no lock: its holder calls the program's
// code, and a caller that finds no progress goes on beside it. All that the holder changes has
// locks of its own. The zero turn is ready.
type turn struct {
	progress
	held    atomic.Bool
	waiting atomic.Int64
}

// try takes the turn if that is free and no goroutine waits for it.
func (t *turn) try() bool { return t.waiting.Load() == 0 && t.take() }

func (t *turn) take() bool { return !t.held.Load() && t.held.CompareAndSwap(false, true) }

// await waits for the turn, and reports whether the caller has it: see [progress.await].
func (t *turn) await(ctx context.Context) bool {
	t.waiting.Add(1)
	defer t.waiting.Add(-1)
	return t.progress.await(ctx, t.take)
}

// giveBack ends a turn that the caller has.
func (t *turn) giveBack(has bool) {
	if has {
		t.step()
		t.held.Store(false)
	}
}

// underWay counts calls that Close waits for. The zero underWay is ready.
type underWay struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n is zero; nil if no caller waits
}

func (u *underWay) begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.n++
}

func (u *underWay) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.n--; u.n == 0 && u.idle != nil {
		close(u.idle)
		u.idle = nil
	}
}

// await waits until none is under way, or ctx ends.
func (u *underWay) await(ctx context.Context) error {
	u.mu.Lock()
	if u.n == 0 {
		u.mu.Unlock()
		return nil
	}
	if u.idle == nil {
		u.idle = make(chan struct{})
	}
	idle := u.idle
	u.mu.Unlock()
	return deadline.Await(ctx, idle)
}
