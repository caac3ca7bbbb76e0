package debugguard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"
	"weak"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
)

// The upkeep lets go what has been in quarantine for its age, and reads verdicts: in
// the background, and in ReapPending. Allocations and frees do none of it for blocks
// of others, but that a free keeps quarantine within its limit (enforceLimit). What was
// freed on a device that is idle since is told after [Config.QuarantineAge], a tick,
// and the moment of a comparison.
const (
	// upkeepShare is the part of the age that a tick may add to it, minUpkeep and
	// maxUpkeep bound it.
	upkeepShare = 20
	minUpkeep   = 10 * time.Millisecond
	maxUpkeep   = time.Second
	// upkeepHaste is the part of a tick after which it looks again, while
	// verdicts are awaited or there is more to do.
	upkeepHaste = 10
	// upkeepStep is how many blocks leave quarantine while others who would let
	// blocks go wait, upkeepSteps how many times that in one tick.
	upkeepStep  = 64
	upkeepSteps = 512
)

// upkeep is the tick. It is a timer and no goroutine, and not set while
// nothing is quarantined and no verdict is awaited: who brings the first sets
// it (wake), and it stays unset when it finds nothing. The call that brings something looks at
// armed behind that, and a tick that ends looks for something behind armed, so one
// of the two sees the other.
type upkeep struct {
	every time.Duration
	timer *time.Timer
	// armed is set while the timer is, and for ever if there are to be no more ticks.
	armed   atomic.Bool
	ticking ctxMutex // held during a tick; Close alone waits for it, no longer than its context
	// life ends with Close.
	life context.Context
	end  context.CancelFunc
}

// upkeepInterval is how often a tick looks while there is nothing in haste.
func (c Config) upkeepInterval() time.Duration {
	if c.Advanced.UpkeepInterval != 0 {
		return c.Advanced.UpkeepInterval
	}
	return min(max(c.QuarantineAge/upkeepShare, minUpkeep), maxUpkeep)
}

func (u *upkeep) begin(every time.Duration, timer *time.Timer) {
	u.every, u.timer, u.ticking = every, timer, newCtxMutex()
	u.life, u.end = context.WithCancel(context.Background())
	u.armed.Store(every < 0)
}

// newTimer returns a timer that is not set. Where it fires it calls f(v), unless
// nothing else holds v any more: a guard that everybody has forgotten can be collected
// without having been closed, and its timer ends.
func newTimer[T any](v *T, f func(*T)) *time.Timer {
	pointer := weak.Make(v)
	timer := time.AfterFunc(math.MaxInt64, func() {
		if v := pointer.Value(); v != nil {
			f(v)
		}
	})
	timer.Stop()
	return timer
}

// wake sets the timer unless it is. It costs a load while it is.
func (u *upkeep) wake() {
	if !u.armed.Load() && u.armed.CompareAndSwap(false, true) {
		u.timer.Reset(u.every)
	}
}

// tick does the upkeep once, and sets the timer if there will be more of it. The last
// one of a closed guard does nothing.
func (r *Resource) tick() {
	u := &r.upkeep
	if u.ticking.lock(u.life) != nil {
		return
	}
	defer u.ticking.unlock()
	if r.closed() {
		return
	}
	next, err := u.every, error(nil)
	defer func() { // also where the program's code ends the goroutine
		if r.closed() || errors.Is(err, core.ErrSticky) { // a lost device is asked nothing more
			return
		}
		u.armed.Store(false)
		if r.hasUpkeep() && u.armed.CompareAndSwap(false, true) {
			u.timer.Reset(next)
		}
	}()
	usercode.Call("the guard's upkeep", func() { next, err = r.keepHouse(u.life) })
}

// hasUpkeep reports whether time alone brings something to do.
func (r *Resource) hasUpkeep() bool {
	mode := r.Mode()
	ages := r.cfg.QuarantineAge < math.MaxInt64 || mode < Sample
	return r.checks.awaited() != 0 || ages && r.quarantine.queue.memory.blocks.Load() != 0 || mode != Hunt && r.canaries.queue.memory.blocks.Load() != 0
}

// keepHouse is the upkeep, and says when it is to be done again. Nothing in it
// waits for the device, except over an upstream without use tracking.
func (r *Resource) keepHouse(ctx context.Context) (next time.Duration, err error) {
	r.poll(math.MaxInt)
	more, err := r.letAgedGo(ctx)
	r.poll(math.MaxInt) // of a device that is idle they are there
	if err == nil && (more || r.checks.awaited() != 0) {
		return max(r.upkeep.every/upkeepHaste, time.Millisecond), nil
	}
	return r.upkeep.every, err
}

// letAgedGo evicts what is over the limit, and then what has been in quarantine for its
// age. It says whether there may be more. It does not wait for
// another eviction, and holds others up for no more than a step.
func (r *Resource) letAgedGo(ctx context.Context) (more bool, err error) {
	r.enforceLimit(ctx, 0)
	for step := range upkeepSteps {
		if !r.evicting.try() {
			return true, nil
		}
		evicted, err := r.evictAgedInTurn(ctx, step == 0)
		if evicted < upkeepStep || err != nil || ctx.Err() != nil {
			return false, err
		}
	}
	return true, nil
}

// evictAgedInTurn is one step of letAgedGo, and ends the turn. It leaves blocks that would go
// unchecked until the device is less far behind.
func (r *Resource) evictAgedInTurn(ctx context.Context, first bool) (evicted int, err error) {
	defer r.evicting.giveBack(true)
	if r.checks.full() {
		return 0, nil
	}
	blocks := r.quarantine.queue.dequeueAged(r.cfg.Advanced.Now().Add(-r.cfg.QuarantineAge), r.cfg.QuarantineAge/8, upkeepStep)
	evicted = len(blocks)
	_, err = r.evict(ctx, &r.quarantine.queue, blocks, never)
	if first {
		err = errors.Join(err, r.postSome(ctx, blocks))
	}
	return evicted, err
}

// closed reports whether Close was called.
func (r *Resource) closed() bool { return r.upkeep.life.Err() != nil }

// Close ends the guard's work in the background and refuses to change its mode
// from now on, and waits for what of both is under way until ctx ends; a change of
// the mode stops before the next blocks that it would free. Close frees nothing and
// compares nothing: Drain does. The guard may be used after it, as one that has
// [Advanced.UpkeepInterval] negative. A second Close is as the first. It is to be
// called before what lies below is closed.
func (r *Resource) Close(ctx context.Context) error {
	r.upkeep.end()
	err := r.upkeep.ticking.lock(ctx)
	if err == nil {
		r.upkeep.ticking.unlock()
		err = r.changes.await(ctx)
	}
	if err != nil {
		return fmt.Errorf("closing the guard, whose upkeep or change of mode is under way: %w", err)
	}
	return nil
}
