package runtimes_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// eachStack opens runtimes over every backend, with a guard and without.
func eachStack(t *testing.T, test func(*testing.T, *fencepost.Runtime)) {
	t.Helper()
	for _, backend := range []fencepost.Backend{fencepost.Async, fencepost.Pool, fencepost.Direct} {
		for _, guard := range []fencepost.GuardMode{fencepost.GuardOff, fencepost.GuardLedger, fencepost.GuardHunt} {
			t.Run(fmt.Sprint(backend, " ", guard), func(t *testing.T) {
				test(t, e2e.Open(t, fencepost.Config{Resource: backend, Guard: guard}))
			})
		}
	}
}

func TestAnEarlierPeakDoesNotHideThatOfAStretch(t *testing.T) {
	eachStack(t, func(t *testing.T, rt *fencepost.Runtime) {
		ctx := t.Context()
		stage := func(name string, sizes ...int) (of core.JobAccount) {
			expect.Success(t, rt.Do(ctx, name, func(j *fencepost.Job) error {
				for _, n := range sizes {
					if _, err := fencepost.Alloc[byte](j, n); err != nil {
						return err
					}
				}
				of = j.Account()
				return nil
			}))
			return of
		}
		stage("warmup", 700<<10, 100<<10)
		stretch := rt.Measure(ctx)
		defer stretch.Stop()
		if job := stage("stage", 200<<10, 50<<10); job.Requested != 250<<10 || job.Bytes < job.Requested {
			t.Errorf("the job's peak is %+v", job)
		}
		p := stretch.Peak()
		if p.Requested != 250<<10 || p.Tags["stage"].Requested != 250<<10 || p.Tags["stage"].Bytes != p.Bytes || len(p.Tags) != 1 {
			t.Errorf("the stretch's peak is %+v", p)
		}
		stage("after", 900<<10)
		if ended := stretch.Stop(); ended.Requested != 900<<10 || ended.Tags["stage"].Requested != 250<<10 {
			t.Errorf("the stretch ended with %+v", ended)
		}
		stage("later", 950<<10)
		if again := stretch.Stop(); again.Requested != 900<<10 {
			t.Errorf("after its end the stretch has %+v", again)
		}
	})
}

// peaksOracle is what a test knows to be live, and the most since each stretch began.
type peaksOracle struct {
	live map[core.Tag]uint64 // under "" of all
	most map[*fencepost.Stretch]map[core.Tag]uint64
}

func (o *peaksOracle) change(tag core.Tag, by int) {
	for _, of := range []core.Tag{"", tag} {
		o.live[of] += uint64(by)
	}
	for _, most := range o.most {
		for of, now := range o.live {
			most[of] = max(most[of], now)
		}
	}
}

func (o *peaksOracle) differs(s *fencepost.Stretch, got core.Peak) error {
	seen := map[core.Tag]uint64{"": got.Requested}
	for tag, p := range got.Tags {
		seen[tag] = p.Requested
	}
	want := maps.Clone(o.most[s])
	maps.DeleteFunc(want, func(tag core.Tag, most uint64) bool { return most == 0 && tag != "" })
	if !maps.Equal(seen, want) {
		return fmt.Errorf("peaks %v, want %v", seen, want)
	}
	return nil
}

// Slices of several tags on several streams come and go by all ways of freeing, and stretches
// begin and end.
func TestPeaksOfStretchesAreThoseOfAnOracle(t *testing.T) {
	seed := rand.Uint64()
	eachStack(t, func(t *testing.T, rt *fencepost.Runtime) {
		ctx, rnd := t.Context(), rand.New(rand.NewPCG(seed, 0))
		type held struct {
			slice *cuda.Slice[byte]
			bytes int
		}
		var leases []*cuda.Lease
		for range 3 {
			leases = append(leases, must.Get(rt.Streams().Acquire(ctx, "oracle"))(t))
		}
		var blocks []held
		o := &peaksOracle{map[core.Tag]uint64{"": 0}, map[*fencepost.Stretch]map[core.Tag]uint64{}}
		var open []*fencepost.Stretch
		account, mine, most := core.NewAccount(), 0, 0
		for range 400 {
			switch do := rnd.IntN(12); {
			case do == 0:
				s := rt.Measure(ctx)
				open = append(open, s)
				o.most[s] = maps.Clone(o.live)
			case do == 1 && len(open) > 0:
				at := rnd.IntN(len(open))
				s := open[at]
				open = slices.Delete(open, at, at+1)
				if err := o.differs(s, s.Stop()); err != nil {
					t.Fatalf("seed %d: a stretch ended with %v", seed, err)
				}
				delete(o.most, s)
			case do < 7 || len(blocks) == 0:
				tag, n := core.Tag(fmt.Sprint("tag", rnd.IntN(4))), 1+rnd.IntN(5000)
				slice := must.Get(cuda.Alloc[byte](ctx, rt.Memory(), n, cuda.AllocOptions{Stream: leases[rnd.IntN(3)].ID(), Tag: tag, Account: account}))(t)
				blocks = append(blocks, held{slice, n})
				mine += n
				most = max(most, mine)
				o.change(tag, n)
			default:
				at := rnd.IntN(len(blocks))
				b := blocks[at]
				blocks = slices.Delete(blocks, at, at+1)
				tag := b.slice.Tag()
				if rnd.IntN(2) == 0 {
					expect.Success(t, b.slice.Free(ctx))
				} else {
					must.Get(rt.Deallocate(ctx, b.slice.BlockID()))(t)
				}
				mine -= b.bytes
				o.change(tag, -b.bytes)
			}
			for _, s := range open {
				if err := o.differs(s, s.Peak()); err != nil {
					t.Fatalf("seed %d: a stretch has %v", seed, err)
				}
			}
		}
		if got := account.Peak(); got.Requested != uint64(most) {
			t.Errorf("seed %d: the account's peak is %d, want %d", seed, got.Requested, most)
		}
		for _, b := range blocks {
			expect.Success(t, b.slice.Free(ctx))
		}
		for _, lease := range leases {
			expect.Success(t, lease.Release())
		}
	})
}

// Jobs with exact peaks of their own run beside each other, and stretches beside them.
func TestPeaksOfJobsAreExactBesideOthers(t *testing.T) {
	eachStack(t, func(t *testing.T, rt *fencepost.Runtime) {
		ctx := t.Context()
		const workers, rounds, most = 4, 20, 3000
		whole := rt.Measure(ctx)
		var work sync.WaitGroup
		for w := range workers {
			work.Go(func() {
				for range rounds {
					var job *fencepost.Job
					err := rt.Do(ctx, fmt.Sprint("job", w), func(j *fencepost.Job) error {
						job = j
						first, err := fencepost.Alloc[byte](j, 2000)
						if err != nil {
							return err
						}
						if _, err := fencepost.Alloc[byte](j, 1000); err != nil {
							return err
						}
						var freed sync.WaitGroup
						freed.Go(func() { err = first.Free(ctx) }) // by another goroutine
						if freed.Wait(); err != nil {
							return err
						}
						fork, err := j.Fork()
						if err != nil {
							return err
						}
						_, err = fencepost.Alloc[byte](fork, 1500)
						return err
					})
					if p := job.Account(); err != nil || p.Requested != most {
						t.Errorf("a job of a peak of %d has %+v, %v", most, p, err)
						return
					}
					stretch := rt.Measure(ctx)
					if p := stretch.Stop(); p.Requested > workers*most {
						t.Errorf("a stretch has %+v", p)
					}
				}
			})
		}
		work.Wait()
		p := whole.Stop()
		for w := range workers {
			if of := p.Tags[core.Tag(fmt.Sprint("job", w))]; of.Requested != most {
				t.Errorf("one tag's peak is %+v, and each of its jobs needs %d", of, most)
			}
		}
		if p.Requested < most || p.Requested > workers*most {
			t.Errorf("the whole has %+v", p)
		}
		quiet := rt.Measure(ctx)
		if p := quiet.Stop(); p.Bytes != 0 || len(p.Tags) != 0 {
			t.Errorf("nothing is live, and the peak is %+v", p)
		}
	})
}

func TestBytesTimesSecondsAreOfTheStretchAlone(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	ctx := t.Context()
	b := must.Get(rt.Allocate(ctx, core.Request{Bytes: 1 << 20, Tag: "held"}))(t)
	called := time.Now()
	stretch := rt.Measure(ctx)
	began := time.Now()
	time.Sleep(2 * time.Millisecond)
	least := time.Since(began)
	must.Get(rt.Deallocate(ctx, b.ID))(t)
	longest := time.Since(called)
	time.Sleep(2 * time.Millisecond)
	p := stretch.Stop()
	const clock = 50 * time.Microsecond // the error of a few readings
	got := time.Duration(p.RequestedSeconds / (1 << 20) * float64(time.Second))
	if got < least-clock || got > longest+clock {
		t.Errorf("a MiB was live for %v, by its byte-seconds, and it was %v to %v", got, least, longest)
	}
	if p.Tags["held"].RequestedSeconds != p.RequestedSeconds || p.Elapsed < least {
		t.Errorf("%+v", p)
	}
}

func TestAStretchEndsWithItsContext(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	stretch := rt.Measure(ctx)
	cancel()
	limit, done := context.WithTimeout(t.Context(), 20*time.Second)
	defer done()
	expect.Success(t, deadline.Poll(limit, func() (bool, error) {
		first := stretch.Peak().Elapsed
		time.Sleep(time.Millisecond)
		return stretch.Peak().Elapsed == first, nil
	}))
}

func TestMeasuringNothingIsZero(t *testing.T) {
	var rt *fencepost.Runtime
	var job *fencepost.Job
	stretch := rt.Measure(t.Context())
	if stretch.Peak().Bytes+stretch.Stop().Bytes+job.Account().Bytes != 0 {
		t.Error("nothing has a peak")
	}
	open := e2e.Open(t, fencepost.Config{})
	must.Get(open.Close(t.Context()))(t)
	if p := open.Measure(t.Context()).Stop(); p.Bytes != 0 {
		t.Errorf("a closed runtime has %+v", p)
	}
}
