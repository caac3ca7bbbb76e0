package gputest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
)

// together runs f in n goroutines and joins their errors.
func together(n int, f func(i int) error) error {
	var group sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		group.Go(func() {
			if err := f(i); err != nil {
				errs[i] = fmt.Errorf("goroutine %d: %w", i, err)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// Many goroutines allocate, write, check and free on streams of their own, and
// all read one table.
func TestManyGoroutinesKeepTheirValuesAndTheBooks(t *testing.T) {
	const goroutines = 16
	b := newBench(t, fencepost.Config{Streams: goroutines + 1})
	home := b.lease("home")
	table := b.alloc(home, 1<<14, "table")
	must(t, b.doWrite(home, table, 11))
	end := time.Now().Add(time.Duration(scaled(5000, 300)) * time.Millisecond)
	var rounds, wrong atomic.Uint64
	must(t, together(goroutines, func(i int) error {
		h := &hammer{bench: b, rng: rand.New(rand.NewPCG(uint64(i), 0)), table: table}
		err := h.run(i, end)
		rounds.Add(h.rounds)
		wrong.Add(h.wrong)
		return err
	}))
	must(t, table.Free(ctx))
	t.Logf("%d rounds in %d goroutines", rounds.Load(), goroutines)
	s := b.Stats()
	if wrong.Load() != 0 || rounds.Load() == 0 || s.OpenIntents != 0 || s.Allocations != s.Deallocations || s.Failures != 0 {
		t.Errorf("%d words are wrong; the books: %+v", wrong.Load(), s)
	}
}

// hammer is one goroutine's part.
type hammer struct {
	*bench
	rng           *rand.Rand
	table         *words
	rounds, wrong uint64
}

func (h *hammer) run(i int, end time.Time) error {
	on, err := h.Streams().Acquire(ctx, "hammer")
	if err != nil {
		return err
	}
	sum, err := h.counter(on)
	if err != nil {
		return err
	}
	for ; time.Now().Before(end); h.rounds++ {
		if err := h.round(on, sum, uint64(i)<<32|h.rounds); err != nil {
			return err
		}
	}
	h.wrong, err = h.mismatches(on, sum)
	return errors.Join(err, on.Release())
}

func (h *hammer) round(on *cuda.Lease, sum *words, value uint64) error {
	w, err := h.tryAlloc(on, 1+h.rng.IntN(1<<14), "hammer")
	if err != nil {
		return err
	}
	return errors.Join(h.doWrite(on, w, value), h.doCheck(on, h.table, 11, sum), h.doCheck(on, w, value, sum), w.Free(ctx))
}

// Each call comes from a goroutine of its own, half of them on threads that
// nobody used before and that end with it: the driver's context is current on
// none of them.
func TestCallsComeFromAnyThread(t *testing.T) {
	b := newBench(t, fencepost.Config{Guard: "off"})
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(32))
	x, y := b.lease("x"), b.lease("y")
	sum, err := b.counter(y)
	must(t, err)
	elsewhere := func(i int, f func() error) {
		t.Helper()
		done := make(chan error)
		go func() {
			if i%2 == 0 {
				runtime.LockOSThread() // and never unlock: the thread ends
			}
			runtime.Gosched()
			done <- f()
		}()
		must(t, <-done)
	}
	for i := range scaled(300, 20) {
		var w *words
		elsewhere(i, func() (err error) { w, err = b.tryAlloc(x, 3000, "wandering"); return err })
		elsewhere(i+1, func() error { return b.doWrite(x, w, uint64(i)) })
		elsewhere(i, func() error { return b.doCheck(y, w, uint64(i), sum) })
		elsewhere(i+1, func() error { return cuda.Memset(ctx, w, y.ID(), 0) })
		elsewhere(i, func() error { return w.Free(ctx) })
	}
	elsewhere(0, func() error { return b.Drain(ctx) })
	b.right(y, sum)
}

// Goroutines that give way between every two steps of one launch, on fewer
// streams than there are of them: whoever waits must be let in.
func TestLaunchesOnSharedStreamsGiveWay(t *testing.T) {
	b := newBench(t, fencepost.Config{Guard: "off"})
	streams := b.leases(3)
	shared := b.alloc(streams[0], 4096, "shared")
	must(t, b.doWrite(streams[0], shared, 0))
	const goroutines = 12
	each := scaled(200, 10)
	must(t, together(goroutines, func(i int) error {
		on := streams[i%len(streams)]
		for range each {
			ticket, err := b.Core().PrepareUse(ctx, core.UseRequest{Stream: on.ID(), Launch: "increment", Wait: true, Uses: []core.Use{shared.Use(core.ReadWrite)}})
			if err != nil {
				return err
			}
			runtime.Gosched()
			err = b.increment(on, shared)
			runtime.Gosched()
			if err := errors.Join(err, b.Core().FinishUse(ctx, ticket)); err != nil {
				return err
			}
		}
		return nil
	}))
	want := uint64(goroutines * each)
	for i, got := range b.read(streams[0], shared) {
		if got != want {
			t.Fatalf("word %d was incremented %d times, want %d", i, got, want)
		}
	}
	must(t, shared.Free(ctx))
}
