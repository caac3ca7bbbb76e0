package fencepost_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// query has the memory of a sort, and of a join if it is one, uses it on two streams, and reads a
// result. If it is spread, both streams allocate.
func query(ctx context.Context, rt *fencepost.Runtime, j *fencepost.Job, rows int, join, spread bool) error {
	other, err := j.Fork()
	if err != nil {
		return err
	}
	slots := 1
	for slots < rows {
		slots *= 2
	}
	sizes := []int{rows, rows, rows, rows, 32 << 10}
	if join {
		sizes = append(sizes, rows/2, 2*slots, rows)
	}
	var last *cuda.Slice[uint32]
	for i, words := range sizes {
		by := j
		if spread && i%2 == 1 {
			by = other
		}
		s, err := fencepost.Alloc[uint32](by, words)
		if err != nil {
			return err
		}
		for _, on := range []*fencepost.Job{j, other} {
			if err := rt.Launch(ctx, on.Stream().ID(), []core.Use{s.Use(core.Write)}, func(ctx context.Context) error {
				return rt.Driver().MemsetAsync(s.Ptr(), 7, 64, on.Stream().Handle())
			}); err != nil {
				return err
			}
		}
		last = s
	}
	_, err = fencepost.Download(j, last)
	return err
}

// admitted runs many queries at once, each of which Admit lets in, and keeps the refusals for want
// of memory.
type admitted struct {
	rt     *fencepost.Runtime
	most   int // rows of a query
	spread bool
	free   uint64

	mu sync.Mutex
	// refused are those for want of memory, and ended all that were served.
	refused []error
	ended   int
	held    uint64
}

func (a *admitted) run(t *testing.T, rng *rand.Rand) {
	rows, name := a.most/10+rng.IntN(a.most*9/10), []string{"sort", "join"}[rng.IntN(2)]
	err := a.rt.Do(t.Context(), name, func(j *fencepost.Job) error {
		return query(t.Context(), a.rt, j, rows, name == "join", a.spread)
	}, fencepost.Admit(), fencepost.Shape("rows", rows))
	free, _, lost := a.rt.Driver().MemInfo()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held = max(a.held, a.free-free)
	switch {
	case lost != nil:
		t.Error(lost)
	case errors.Is(err, core.ErrOutOfMemory):
		a.refused = append(a.refused, err)
	case err == nil:
		a.ended++
	case !errors.Is(err, core.ErrOutOfBudget): // while it learns what they need it may predict too little
		t.Error(err)
	}
}

// Jobs that were let in for what they will need get it, however the free memory of their share
// lies. For that the runtime may hold half of the share more, or two pages for each stream, and
// gives that back.
func TestAJobThatWasLetInIsServed(t *testing.T) {
	base := uint64(time.Now().UnixNano())
	t.Logf("seed %d", base)
	for _, resource := range []fencepost.Backend{fencepost.Pool, fencepost.Async} {
		for i, share := range []uint64{24*mib + 4711, 44 * mib, 88 * mib, 132 * mib} {
			for _, most := range []int{200_000, 1_000_000} {
				for _, spread := range []bool{false, true} {
					if share < uint64(most)*32 {
						continue // one alone may need more
					}
					if testing.Short() && spread != (i%2 == 0) {
						continue
					}
					seed := base + uint64(i)
					t.Run(fmt.Sprintf("%s/%d/%d/%v", resource, share/mib, most, spread), func(t *testing.T) {
						a := &admitted{most: most, spread: spread}
						a.rt = e2e.OpenDirty(t, fencepost.Config{Resource: resource, Guard: fencepost.GuardOff, Streams: 64,
							ReservePasses: 8, Budget: share,
							Sim: sim.Config{Schedule: sim.Seeded(seed)}})
						a.free = must.Get(deviceFree(a.rt))(t)
						var workers sync.WaitGroup
						for worker := range uint64(16) {
							workers.Go(func() {
								rng := rand.New(rand.NewPCG(seed, worker))
								for range 20 {
									a.run(t, rng)
								}
							})
						}
						workers.Wait()
						t.Logf("seed %d: at most %.1f MiB of %.1f were held", seed, float64(a.held)/mib, float64(share)/mib)
						if a.ended < 200 {
							t.Errorf("%d jobs of 320 were served, which shows nothing", a.ended)
						}
						for _, err := range a.refused {
							t.Error(err)
						}
						if may := a.rt.Stats().HeldLimit + max(64*2*sim.Granule, share/2); a.held > may {
							t.Errorf("%d bytes of the device were held, and %d may be", a.held, may)
						}
						ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
						defer cancel()
						must.Do(t, deadline.Poll(ctx, func() (bool, error) {
							free, err := deviceFree(a.rt)
							return a.free-free <= a.rt.Stats().HeldLimit, err
						}))
					})
				}
			}
		}
	}
}

func deviceFree(rt *fencepost.Runtime) (uint64, error) {
	free, _, err := rt.Driver().MemInfo()
	return free, err
}

// A job whose context ends while it waits to be admitted is told what it waits for: those before it
// in line, or more memory than is left, with what is kept for jobs inside.
func TestAJobThatIsNotAdmittedIsToldWhatIsKept(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 5))
	for _, known := range []bool{false, true} {
		t.Run(fmt.Sprintf("known %v", known), func(t *testing.T) {
			rt := e2e.Open(t, fencepost.Config{Device: fencepost.Sim, Guard: fencepost.GuardOff, Budget: 128 * mib})
			for i := 0; known && i < 60; i++ {
				n := 1 + random.IntN(30<<20)
				must.Do(t, rt.Do(t.Context(), "job", func(j *fencepost.Job) error {
					_, err := fencepost.Alloc[byte](j, n)
					return err
				}, fencepost.Admit()))
			}
			release, waits := make(chan struct{}), 0
			var all sync.WaitGroup
			for i := range 12 { // one after the other, so none is ahead of another
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				entered := make(chan struct{})
				var once sync.Once
				ended := make(chan error, 1)
				name := "job"
				if !known {
					name = fmt.Sprint("job ", i)
				}
				all.Go(func() {
					ended <- rt.Do(ctx, name, func(*fencepost.Job) error {
						once.Do(func() { close(entered) })
						<-release
						return nil
					}, fencepost.Admit())
				})
				for inside := false; !inside && ctx.Err() == nil; {
					select {
					case <-entered:
						inside = true
					case <-time.After(time.Millisecond):
						if rt.Waiting() > 0 {
							cancel()
						}
					}
				}
				if ctx.Err() == nil {
					t.Cleanup(cancel)
					continue
				}
				cancel()
				var w *core.WaitError
				switch err := <-ended; {
				case err == nil: // it came in at the last moment
				case !errors.As(err, &w):
					t.Fatal(err)
				case w.Wait.Ahead != 0, w.Remaining >= w.Requested+w.Kept:
					t.Fatalf("nothing says why it waited: %v: %+v", err, *w)
				default:
					waits++
				}
			}
			close(release)
			all.Wait()
			if waits == 0 {
				t.Error("no job waited, which shows nothing")
			}
		})
	}
}
