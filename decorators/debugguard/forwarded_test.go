package debugguard_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// limited is a budget that lends nothing: what is pending is charged. Its device
// passes the frees when it has been asked so often.
type limited struct {
	*coretest.Fake
	limit          uint64
	asked, refused atomic.Int64
	passAt         int64
	// onRefusal, if not nil, is called at each refusal.
	onRefusal func()
	// refuses, if not nil, is what it refuses with, instead of a budget's figures.
	refuses error
}

func (l *limited) room(bytes uint64) error {
	s := l.Fake.Stats()
	if used := s.Outstanding().Bytes; used+bytes > l.limit {
		l.refused.Add(1)
		if l.onRefusal != nil {
			l.onRefusal()
		}
		if l.refuses != nil {
			return l.refuses
		}
		return &core.OutOfBudgetError{Requested: bytes, Remaining: l.limit - min(used, l.limit), Limit: l.limit, Pending: s.Pending.Bytes, Live: s.Live.Bytes}
	}
	return nil
}

func (l *limited) Allocate(ctx context.Context, r core.Request) (core.Block, error) {
	if err := l.room(r.Bytes); err != nil {
		return core.Block{}, err
	}
	return l.Fake.Allocate(ctx, r)
}

func (l *limited) Reserve(_ context.Context, bytes uint64, tag core.Tag) (core.Claim, error) {
	return core.Claim{Bytes: bytes, Tag: tag}, l.room(bytes)
}

func (l *limited) Stats() core.Stats {
	s := l.Fake.Stats()
	s.Limit, s.Refusals = l.limit, uint64(l.refused.Load())
	return s
}

func (l *limited) ReapPending(ctx context.Context) error {
	if l.asked.Add(1) == l.passAt {
		l.Pass()
	}
	return l.Fake.ReapPending(ctx)
}

func newLimited(t *testing.T, limit uint64, passAt int64, change ...func(*debugguard.Config)) (*bench, *limited, *events) {
	t.Helper()
	b, told := newBench(t, debugguard.Off), &events{}
	l := &limited{Fake: b.fake, limit: limit, passAt: passAt}
	b.guard = b.over(l, debugguard.Hunt, append(change, func(c *debugguard.Config) { c.Advanced.Events, c.Advanced.Hunt.Canaries = told, -1 })...)
	return b, l, told
}

func TestARequestWaitsForWhatTheGuardHeldAndTheDeviceHasNotPassed(t *testing.T) {
	for name, ask := range map[string]func(*bench) error{
		"block": func(b *bench) error {
			block, err := b.guard.Allocate(ctx, core.Request{Bytes: 4096, Stream: 2, Tag: "second"})
			if err == nil {
				b.free(block)
			}
			return err
		},
		"claim": func(b *bench) error { _, err := b.guard.Reserve(ctx, 4096, "second"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			b, l, told := newLimited(t, 6000, 20, func(c *debugguard.Config) { c.Advanced.Patience = time.Minute })
			b.free(b.alloc(4096))
			must.Do(t, ask(b))
			if g, s := b.guard.GuardStats(), b.guard.Stats(); g.Relieved != 1 || g.Unguarded != 0 || s.Refusals != 0 || l.refused.Load() == 0 {
				t.Errorf("%+v; %d refusals told, %d by the budget", g, s.Refusals, l.refused.Load())
			}
			if len(told.all) != 1 || !told.all[0].Relieved || told.all[0].Tag != "second" {
				t.Errorf("events %+v", told.all)
			}
			b.empty()
			b.want()
		})
	}
}

// The device may pass a free at any moment: also after a request was refused for it, and before
// anything has looked what is pending. The request that finds nothing pending then is made again.
func TestMemoryThatComesBackBetweenATryAndTheLookIsNotMissed(t *testing.T) {
	claim := func(b *bench) error { _, err := b.guard.Reserve(ctx, 4096, "second"); return err }
	block := func(isolated bool) func(*bench) error {
		return func(b *bench) error {
			block, err := b.guard.Allocate(ctx, core.Request{Bytes: 4096, Stream: 2, Isolated: isolated})
			if err == nil {
				b.free(block)
			}
			return err
		}
	}
	for name, c := range map[string]struct {
		ask     func(*bench) error
		refuses error
	}{
		"a block, refused by a budget": {block(false), nil},
		"a block, refused by a budget without figures": {block(false),
			&core.OutOfBudgetError{Requested: 4096, Limit: 6000, Remaining: 1}},
		"a block, refused by the device":           {block(false), errMemory},
		"an isolated block, refused by a budget":   {block(true), nil},
		"an isolated block, refused by the device": {block(true), errMemory},
		"a reservation": {claim, nil},
		"a reservation by a budget that tells no figure": {claim,
			&core.OutOfBudgetError{Requested: 4096, Limit: 6000, Remaining: 1}},
	} {
		for _, mode := range []debugguard.Mode{debugguard.Off, debugguard.Ledger, debugguard.Sample} {
			t.Run(name+" under "+mode.String(), func(t *testing.T) {
				b, l, _ := newLimited(t, 6000, 0, func(c *debugguard.Config) {
					c.Advanced.Patience, c.SampleBytes = time.Minute, 1<<40
				})
				b.fake.Isolate(512)
				b.mode(mode)
				b.free(b.alloc(4096))
				l.onRefusal, l.refuses = l.Pass, c.refuses
				must.Do(t, c.ask(b))
				if l.refused.Load() == 0 {
					t.Error("it was never refused: nothing is tried")
				}
				b.empty()
			})
		}
	}
}

// Memory that is freed and not passed is waited for in every mode, whoever held it.
func TestARequestWaitsForPendingMemoryInEveryMode(t *testing.T) {
	for _, mode := range []debugguard.Mode{debugguard.Off, debugguard.Ledger, debugguard.Sample, debugguard.Hunt} {
		var steps []oplog.Step
		b, _, _ := newLimited(t, 6000, 20, func(c *debugguard.Config) {
			c.Advanced.Patience, c.SampleBytes = time.Minute, 1<<40
			c.Advanced.BeginStep = func(_ context.Context, s oplog.Step) func(error) { steps = append(steps, s); return nil }
		})
		b.mode(mode)
		b.free(b.alloc(4096))
		block := must.Get(b.guard.Allocate(ctx, core.Request{Bytes: 4096, Stream: 2}))(t)
		if s := b.guard.Stats(); s.MemoryWaits != 1 || s.MemoryWaitsServed != 1 || s.MemoryWaitTime == 0 || s.Refusals != 0 {
			t.Errorf("%v: waits %d, served %d in %v, refusals %d", mode, s.MemoryWaits, s.MemoryWaitsServed, s.MemoryWaitTime, s.Refusals)
		}
		if len(steps) != 1 || !steps[0].Memory || steps[0].Bytes < 4096 || steps[0].Stream != 2 {
			t.Errorf("%v: steps %+v", mode, steps)
		}
		b.free(block)
		b.empty()
	}
}

// What is live is not waited for, nor what is pending where all of it together is too little.
func TestARequestDoesNotWaitForWhatCannotHelp(t *testing.T) {
	for name, c := range map[string]struct{ live, freed uint64 }{"live": {4096, 64}, "too little": {3000, 1024}} {
		t.Run(name, func(t *testing.T) {
			b, l, told := newLimited(t, 6000, 0)
			b.mode(debugguard.Ledger)
			live := b.alloc(c.live)
			b.free(b.alloc(c.freed))
			reaps := l.asked.Load()
			expect.ErrorOf(b.guard.Allocate(ctx, core.Request{Bytes: 4096}))(t, core.ErrOutOfBudget)
			if n := l.asked.Load() - reaps; n > 1 {
				t.Errorf("the device was asked %d times, and once is no wait", n)
			}
			if s := b.guard.Stats(); len(told.all) != 1 || told.all[0].Relieved || told.all[0].Requested != 4096 || s.Refusals != 1 || s.MemoryWaits != 0 {
				t.Errorf("one refusal: events %+v, %d counted, %d waits", told.all, s.Refusals, s.MemoryWaits)
			}
			b.free(live)
			b.empty()
		})
	}
}

// On a device that passes nothing a request is refused when its patience or its context is
// over, and the refusal says so.
func TestADeviceThatPassesNothingIsWaitedForNoLongerThanPatience(t *testing.T) {
	for name, c := range map[string]struct{ patience, context time.Duration }{"patience": {20 * time.Millisecond, time.Hour}, "context": {time.Hour, 100 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			b, _, told := newLimited(t, 6000, 0, func(cfg *debugguard.Config) { cfg.Advanced.Patience = c.patience })
			b.free(b.alloc(4096))
			bounded, cancel := context.WithTimeout(ctx, c.context)
			defer cancel()
			_, err := b.guard.Allocate(bounded, core.Request{Bytes: 4096, Stream: 2})
			if !errors.Is(err, core.ErrOutOfBudget) || !strings.Contains(err.Error(), "waited") {
				t.Errorf("the refusal: %v", err)
			}
			if s := b.guard.Stats(); len(told.all) != 1 || s.Refusals != 1 || s.MemoryWaits != 1 || s.MemoryWaitsServed != 0 {
				t.Errorf("one refusal: %d events, %+v", len(told.all), s)
			}
			b.fake.Pass()
			b.free(b.allocOn(2, 4096))
			b.empty()
			b.want()
		})
	}
}

func TestNobodyWaitsWhereThatIsNotWanted(t *testing.T) {
	b, l, _ := newLimited(t, 6000, 20, func(c *debugguard.Config) { c.Advanced.Patience = -1 })
	b.free(b.alloc(4096))
	before := l.asked.Load()
	expect.ErrorOf(b.guard.Allocate(ctx, core.Request{Bytes: 4096, Stream: 2}))(t, core.ErrOutOfBudget)
	if n := l.asked.Load() - before; n > 5 {
		t.Errorf("the device was asked %d times", n)
	}
	b.empty()
}

// Others give back and take all the time, so something has always come back since
// a request was refused. That is no reason to ask for ever.
func TestARequestStopsAskingWhenItsTimeIsOver(t *testing.T) {
	over, cancel := context.WithCancel(ctx)
	cancel()
	for name, c := range map[string]struct {
		ctx      context.Context
		patience time.Duration
	}{"an ended context": {over, time.Hour}, "no patience": {ctx, -1}, "patience that ends": {ctx, time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			b, l, _ := newLimited(t, 1<<20, 0, func(cfg *debugguard.Config) { cfg.Advanced.Patience, cfg.Advanced.Hunt.QuarantineBytes = c.patience, 1 })
			held := b.alloc(700 << 10)
			began, asked := time.Now(), 0
			l.onRefusal = func() {
				if asked++; asked > 1_000_000 || c.patience != time.Millisecond && asked > 1000 {
					return // or a wrong answer would take for ever
				}
				b.free(b.alloc(64))
				l.Pass()
			}
			expect.ErrorOf(b.guard.Allocate(c.ctx, core.Request{Bytes: 500 << 10, Stream: 2}))(t, core.ErrOutOfBudget)
			if asked > 200 && c.patience != time.Millisecond || asked > 1_000_000 {
				t.Errorf("it asked %d times in %v", asked, time.Since(began))
			}
			l.onRefusal = nil
			b.free(held)
			b.empty()
		})
	}
}

func TestALostDeviceIsNotWaitedFor(t *testing.T) {
	b, l, _ := newLimited(t, 6000, 0)
	b.free(b.alloc(4096))
	b.fake.FailNext("ReapPending", nil, errDevice, errDevice, errDevice, errDevice)
	began := l.asked.Load()
	expect.ErrorOf(b.guard.Allocate(ctx, core.Request{Bytes: 4096, Stream: 2}))(t, core.ErrOutOfBudget)
	if n := l.asked.Load() - began; n > 5 {
		t.Errorf("the device was asked %d times", n)
	}
	b.fake.FailNext("ReapPending")
	b.empty()
}

// What isolated blocks take beyond their callers' bytes, live or on the way out,
// is an eighth of the budget at most.
func TestIsolationTakesAnEighthOfTheBudgetAtMost(t *testing.T) {
	b, l, _ := newLimited(t, 64*granule, 0, func(c *debugguard.Config) { c.Advanced.Hunt.Unmap = true })
	b.fake.Isolate(granule)
	b.guard = b.over(l, debugguard.Hunt, func(c *debugguard.Config) { c.Advanced.Hunt.Unmap, c.Advanced.Hunt.Canaries = true, -1 })
	var live []core.Block
	for range 4 {
		live = append(live, b.alloc(100))
	}
	for range 20 {
		b.free(b.alloc(100))
	}
	if g := b.guard.GuardStats(); g.Isolated != 8 || g.NotIsolated != 16 || g.Guarded != 24 {
		t.Errorf("of eight that may be: %+v", g)
	}
	b.fake.Pass()
	b.free(b.alloc(100))
	if g := b.guard.GuardStats(); g.Isolated != 9 {
		t.Errorf("after the device has passed them: %+v", g)
	}
	for _, block := range live {
		b.free(block)
	}
	b.empty()
	b.want()
}
