package runtimes_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// cache is memory that a program gives back when it is asked to.
type cache struct {
	rt     *fencepost.Runtime
	answer func(c *cache, ctx context.Context, bytes uint64) bool

	mu     sync.Mutex
	blocks []core.BlockID
	asked  []uint64
}

const (
	cacheBlock = 256 << 10
	cacheSpace = 16 * cacheBlock
)

// open opens a runtime whose budget the cache has used up.
func (c *cache) open(t *testing.T, backend fencepost.Backend, guard fencepost.GuardMode) {
	t.Helper()
	c.rt = e2e.Open(t, fencepost.Config{Resource: backend, Guard: guard, Budget: cacheSpace, Patience: time.Millisecond,
		OnShortage: func(ctx context.Context, bytes uint64) bool {
			c.mu.Lock()
			c.asked = append(c.asked, bytes)
			c.mu.Unlock()
			return c.answer(c, ctx, bytes)
		}})
	answer := c.answer
	c.answer = func(*cache, context.Context, uint64) bool { return false }
	for {
		b, err := c.rt.Allocate(t.Context(), core.Request{Bytes: cacheBlock, Tag: "cache"})
		if err != nil {
			expect.Error(t, err, core.ErrOutOfBudget, "filling the budget")
			break
		}
		c.blocks = append(c.blocks, b.ID)
	}
	t.Cleanup(func() { c.give(t.Context(), cacheSpace) })
	c.answer, c.asked = answer, nil
}

// give frees blocks of so many bytes, if there are any.
func (c *cache) give(ctx context.Context, bytes uint64) (gave bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for freed := uint64(0); freed < bytes && len(c.blocks) > 0; freed += cacheBlock {
		if _, err := c.rt.Deallocate(context.WithoutCancel(ctx), c.blocks[0]); err != nil {
			return gave
		}
		c.blocks, gave = c.blocks[1:], true
	}
	return gave
}

func (c *cache) calls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.asked)
}

// A program that gives memory back when it is asked to is refused nothing, whatever asks.
func TestTheProgramIsAskedForMemoryBeforeARefusal(t *testing.T) {
	ctx := t.Context()
	for name, ask := range map[string]func(rt *fencepost.Runtime) error{
		"a request": func(rt *fencepost.Runtime) error {
			b, err := rt.Allocate(ctx, core.Request{Bytes: 3 * cacheBlock})
			if err == nil {
				_, err = rt.Deallocate(ctx, b.ID)
			}
			return err
		},
		"a reservation": func(rt *fencepost.Runtime) error {
			c, err := rt.Reserve(ctx, 3*cacheBlock, "claim")
			if err == nil {
				err = rt.Core().ReleaseClaim(ctx, c.ID)
			}
			return err
		},
		"a job at once": func(rt *fencepost.Runtime) error {
			return rt.Do(ctx, "job", func(*fencepost.Job) error { return nil }, fencepost.Reserve(3*cacheBlock, 0))
		},
		"a job in line": func(rt *fencepost.Runtime) error {
			return rt.Do(ctx, "job", func(*fencepost.Job) error { return nil }, fencepost.Reserve(3*cacheBlock, time.Minute))
		},
		"an admitted job": func(rt *fencepost.Runtime) error {
			return rt.Do(ctx, "job", func(j *fencepost.Job) error { return e2e.ErrorOf(fencepost.Alloc[byte](j, 3*cacheBlock)) },
				fencepost.Admit())
		},
	} {
		for _, backend := range e2e.Backends() {
			if name == "a job at once" && backend == fencepost.Async {
				continue // it takes what the device has passed, and waits for none
			}
			for _, guard := range []fencepost.GuardMode{"off", "ledger", "sample:1", "hunt"} {
				t.Run(name+"/"+string(backend)+"/"+string(guard), func(t *testing.T) {
					c := &cache{answer: func(c *cache, ctx context.Context, bytes uint64) bool { return c.give(ctx, bytes) }}
					c.open(t, backend, guard)
					expect.Success(t, ask(c.rt))
					if c.calls() == 0 {
						t.Error("it was not asked")
					}
				})
			}
		}
	}
}

// Whatever the program's function answers or does, the request that lacks memory ends, and nothing is lost.
func TestWhateverTheProgramAnswersARequestThatLacksMemoryEnds(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(c *cache, ctx context.Context, bytes uint64) bool
		most   int // calls
	}{
		"no":                   {func(*cache, context.Context, uint64) bool { return false }, 4},
		"yes, but gives none":  {func(*cache, context.Context, uint64) bool { return true }, 16},
		"a panic":              {func(*cache, context.Context, uint64) bool { panic("the program's bug") }, 4},
		"asks for more itself": {func(c *cache, ctx context.Context, _ uint64) bool { return c.askMore(ctx) }, 16},
	} {
		for _, backend := range e2e.Backends() {
			t.Run(name+"/"+string(backend), func(t *testing.T) {
				of := &cache{answer: c.answer}
				of.open(t, backend, "sample:1")
				_, err := of.rt.Allocate(t.Context(), core.Request{Bytes: cacheBlock, Tag: "more"})
				short, ok := errors.AsType[*core.OutOfBudgetError](err)
				if !ok || len(short.Holders) == 0 || short.Holders[0].Tag != "cache" {
					t.Errorf("it heard %v", err)
				}
				if n := of.calls(); n == 0 || n > 2*c.most { // with red zones, and without
					t.Errorf("it was asked %d times", n)
				}
				of.give(t.Context(), cacheSpace)
				must.Do(t, of.rt.Drain(t.Context()))
				b := must.Get(of.rt.Allocate(t.Context(), core.Request{Bytes: cacheBlock, Tag: "more"}))(t)
				must.Get(of.rt.Deallocate(t.Context(), b.ID))(t)
			})
		}
	}
}

// askMore is a program that needs memory itself before it could give any.
func (c *cache) askMore(ctx context.Context) bool {
	b, err := c.rt.Allocate(ctx, core.Request{Bytes: cacheBlock})
	if err != nil {
		return true
	}
	_, _ = c.rt.Deallocate(ctx, b.ID)
	return true
}
