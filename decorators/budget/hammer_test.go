package budget

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

// A limiter that adds first and checks afterwards refuses about half of the
// requests that fit here.
func TestAnOversizedRequestNeverGetsAFittingOneRefused(t *testing.T) {
	r := newBudget(t, &leaf{}, Config{Limit: 1000})
	mustAllocate(t, r, core.Request{Bytes: 200})
	stop := make(chan struct{})
	var greedy, modest sync.WaitGroup
	greedy.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				expect.ErrorOf(r.Allocate(context.Background(), core.Request{Bytes: 900}))(t, core.ErrOutOfBudget, "too much was not refused")
			}
		}
	})
	for i := range 4 {
		modest.Go(func() {
			for range 20_000 {
				b, err := r.Allocate(context.Background(), core.Request{Bytes: 200, Stream: core.StreamID(i)})
				if err != nil {
					t.Errorf("a request that fits was refused: %v", err)
					return
				}
				if _, err := r.Deallocate(context.Background(), b.ID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	modest.Wait()
	close(stop)
	greedy.Wait()
	wantCharged(t, r, 200)
}

// The device passes frees at any moment, from goroutines of its own: a churn
// that fits in order must not fall into a gap between pending and free.
func TestChurnIsNotRefusedWhateverTheReapersDo(t *testing.T) {
	d := newDevice()
	r := newBudget(t, d, Config{Limit: 4 * 100})
	stop := make(chan struct{})
	var reapers, churns sync.WaitGroup
	for range 2 {
		reapers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					d.pass(core.StreamID(rand.IntN(4)), 1+rand.IntN(3))
				}
			}
		})
	}
	for stream := range core.StreamID(4) {
		c := mustReserve(t, r, 50)
		churns.Go(func() { churn(t, r, core.Request{Bytes: 50, Stream: stream}) })
		churns.Go(func() { churn(t, r, core.Request{Bytes: 45, Stream: stream, Claim: c.ID}) })
	}
	churns.Wait()
	close(stop)
	reapers.Wait()
	for stream := range core.StreamID(4) {
		d.pass(stream, len(d.queues[stream]))
	}
	if s := r.Stats(); s.Charged != 200 || s.Claimed != 200 || s.Refusals != 0 || s.Underflows != 0 {
		t.Errorf("stats %+v, want just the claims", s)
	}
}

func churn(t *testing.T, r *Resource, req core.Request) {
	for range 3000 {
		b, err := r.Allocate(context.Background(), req)
		if err != nil {
			t.Errorf("a churn within its part of the limit: %v", err)
			return
		}
		if _, err := r.Deallocate(context.Background(), b.ID); err != nil {
			t.Error(err)
			return
		}
	}
}

func TestEverythingAtOnceEndsAtZero(t *testing.T) {
	d := newDevice()
	d.onReap = func() { d.pass(core.StreamID(rand.IntN(3)), 2) }
	r := newBudget(t, d, Config{Limit: 5000})
	var workers sync.WaitGroup
	var over atomic.Uint64
	for i := range 8 * runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 1))
			for range 300 {
				hammer(t, r, rnd)
				if r.ledger.used.Load() > 5000 {
					over.Add(1)
				}
			}
		})
	}
	workers.Wait()
	for stream := range core.StreamID(3) {
		d.pass(stream, len(d.queues[stream]))
	}
	wantEmpty(t, r)
	if n := over.Load(); n != 0 {
		t.Errorf("the limit was seen exceeded %d times", n)
	}
}

// hammer is one request: a claim, some blocks from it and from the general
// ledger, all given back.
func hammer(t *testing.T, r *Resource, rnd *rand.Rand) {
	ctx, tags := context.Background(), []core.Tag{"a", "b", "c"}
	claim, err := r.Reserve(ctx, 1+rnd.Uint64N(500), "request")
	if err != nil && !errors.Is(err, core.ErrOutOfBudget) {
		t.Error(err)
	}
	var blocks []core.Block
	for range rnd.IntN(4) {
		req := core.Request{Requested: 1 + rnd.Uint64N(300), Stream: core.StreamID(rnd.IntN(3)), Tag: tags[rnd.IntN(3)]}
		req.Bytes = req.Requested
		if rnd.IntN(2) == 0 && claim.ID != 0 {
			req.Claim = claim.ID
			req.Bytes += rnd.Uint64N(64)
		}
		b, err := r.Allocate(ctx, req)
		if err == nil {
			blocks = append(blocks, b)
		} else if !isRefusal(err) {
			t.Error(err)
		}
	}
	if claim.ID != 0 {
		defer func() {
			expect.Success(t, r.ReleaseClaim(ctx, claim.ID))
		}()
	}
	for _, b := range blocks {
		if _, err := r.Deallocate(ctx, b.ID); err != nil {
			t.Error(err)
		}
	}
}

// The upstream frees, its address is taken at once by another goroutine, and
// only then does Deallocate return to the first one.
func TestAnAddressTakenAgainDuringItsFreeConfusesNothing(t *testing.T) {
	slow := &leaf{delay: func(core.BlockID) { time.Sleep(30 * time.Millisecond) }}
	for _, size := range []uint64{0, 256} {
		r := newBudget(t, slow, Config{Limit: 1024})
		var threads sync.WaitGroup
		for i := range 2 {
			threads.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				b, err := r.Allocate(context.Background(), core.Request{Bytes: size})
				if size == 0 {
					expect.Error(t, err, core.ErrInvalidRequest, "zero bytes")
					return
				}
				if _, err := r.Deallocate(context.Background(), b.ID); err != nil {
					t.Error(err)
				}
			})
		}
		threads.Wait()
		wantEmpty(t, r)
	}
}
