package runtimes_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func loadAdd(t *testing.T, rt *fencepost.Runtime) *cuda.Kernel {
	t.Helper()
	m := must.Get(rt.Load("job.test", nil, e2e.AddTwin))(t)
	return must.Get(m.Kernel("add"))(t)
}

// addOn is a kernel's whole way through a job.
func addOn(j *fencepost.Job, k *cuda.Kernel, values []uint32, v uint32) ([]uint32, error) {
	from, err := fencepost.Upload(j, values)
	if err != nil {
		return nil, err
	}
	to, err := fencepost.Alloc[uint32](j, len(values))
	if err != nil {
		return nil, err
	}
	if err := j.Launch(k, cuda.Blocks1D(len(values), 256), fencepost.Writes(to), fencepost.Reads(from), fencepost.Value(uint32(len(values))), fencepost.Value(v)); err != nil {
		return nil, err
	}
	return fencepost.Download(j, to)
}

// nothingIsHeld checks the books when no job is under way.
func nothingIsHeld(t *testing.T, rt *fencepost.Runtime) {
	t.Helper()
	if st := rt.Stats(); st.Live != (core.Amount{}) || st.Claims != 0 || st.OpenIntents != 0 {
		t.Errorf("the books: %+v", st)
	}
	if st := rt.Streams().Stats(); st.Leased != 0 {
		t.Errorf("the leases: %+v", rt.Streams().Leases())
	}
	e2e.Succeed(t, "draining", rt.Drain(context.Background()))
	if st := rt.Stats(); st.Outstanding() != (core.Amount{}) || st.Charged != 0 {
		t.Errorf("the books after a drain: %+v", st)
	}
}

func TestAJobUploadsLaunchesAndDownloads(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	k := loadAdd(t, rt)
	var got []uint32
	err := rt.Do(t.Context(), "job", func(j *fencepost.Job) (err error) {
		got, err = addOn(j, k, []uint32{1, 2, 3}, 40)
		if n := rt.Stats().Live.Blocks; n != 2 {
			t.Errorf("%d blocks within the job, want 2", n)
		}
		if l := rt.Streams().Leases(); len(l) != 1 || l[0].Tag != "job" || j.Stream().ID() != l[0].ID {
			t.Errorf("the leases are %+v", l)
		}
		return err
	})
	if err != nil || !slices.Equal(got, []uint32{41, 42, 43}) {
		t.Errorf("%v, %v", got, err)
	}
	nothingIsHeld(t, rt)
}

func TestAJobLeavesNothingBehindHoweverItEnds(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	k := loadAdd(t, rt)
	stop := errors.New("stop")
	for name, c := range map[string]struct {
		end  func(cancel func()) error
		want error
	}{
		"it succeeds":     {func(func()) error { return nil }, nil},
		"an error":        {func(func()) error { return stop }, stop},
		"a panic":         {func(func()) error { panic(stop) }, stop},
		"runtime.Goexit":  {func(func()) error { runtime.Goexit(); return nil }, nil},
		"a cancelled job": {func(cancel func()) error { cancel(); return nil }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got error
			var group sync.WaitGroup
			group.Go(func() {
				defer func() {
					if p := recover(); p != nil {
						got = p.(error)
					}
				}()
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				got = rt.Do(ctx, "job", func(j *fencepost.Job) error {
					side, err := j.Fork()
					if err != nil {
						return err
					}
					if _, err := addOn(side, k, []uint32{1}, 1); err != nil {
						return err
					}
					if _, err := addOn(j, k, []uint32{1}, 1); err != nil {
						return err
					}
					return c.end(cancel)
				}, fencepost.Reserve(1<<20, 0))
			})
			group.Wait()
			if got != c.want { // an error that is alone stays what it is
				t.Errorf("got %v, want %v", got, c.want)
			}
			nothingIsHeld(t, rt)
		})
	}
}

func TestWhatWasFreedOrViewedWithinAJobEndsWithIt(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	var view *cuda.Slice[uint32]
	err := rt.Do(t.Context(), "job", func(j *fencepost.Job) error {
		early, err := fencepost.Upload(j, []uint32{1, 2, 3})
		if err != nil {
			return err
		}
		viewed, err := fencepost.Upload(j, []uint32{4, 5, 6})
		if err != nil {
			return err
		}
		if view, err = viewed.View(1, 3); err != nil {
			return err
		}
		empty, err := fencepost.Upload(j, []uint32{})
		if err != nil || empty.Len() != 0 {
			t.Errorf("an empty upload: %v", err)
		}
		got, err := fencepost.Download(j, view)
		if !slices.Equal(got, []uint32{5, 6}) {
			t.Errorf("the view is %v", got)
		}
		return errors.Join(err, early.Free(t.Context()), viewed.Free(t.Context()))
	})
	e2e.Succeed(t, "the job", err)
	nothingIsHeld(t, rt)
}

// The device that hangs behind an upload keeps Do until the context ends: until
// then the values must not be changed.
func TestDoWaitsForWhatWasUploaded(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	for name, work := range map[string]func(*fencepost.Job) error{
		"uploaded": func(j *fencepost.Job) error { _, err := fencepost.Upload(j, []uint32{1}); return err },
		"copied by hand": func(j *fencepost.Job) error {
			s, err := fencepost.Alloc[uint32](j, 1)
			if err != nil {
				return err
			}
			return cuda.Memset(t.Context(), s, j.Stream().ID(), 1)
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		var release func()
		err := rt.Do(ctx, "job", func(j *fencepost.Job) error {
			handle, err := rt.Streams().Handle(rt.Streams().Leases()[0].ID) // not the job's Stream, after which it waits in any case
			if err != nil {
				return err
			}
			if release, err = e2e.Simulated(rt).Hold(handle); err != nil {
				return err
			}
			defer cancel()
			return work(j)
		})
		expect.Error(t, err, context.Canceled, name)
		release()
		nothingIsHeld(t, rt)
	}
}

func TestAForkIsDoneInTurnWhereNoStreamIsFree(t *testing.T) {
	for streams, want := range map[int]int{1: 1, 2: 2} {
		rt := e2e.Open(t, fencepost.Config{Streams: streams})
		k := loadAdd(t, rt)
		err := rt.Do(t.Context(), "job", func(j *fencepost.Job) error {
			side, err := j.Fork()
			if err != nil {
				return err
			}
			if leased := rt.Streams().Stats().Leased; leased != want || (side.Stream() != j.Stream()) != (want == 2) {
				t.Errorf("of %d streams the job and its fork have %d", streams, leased)
			}
			from, err := fencepost.Upload(side, []uint32{1, 2})
			if err != nil {
				return err
			}
			to, err := fencepost.Alloc[uint32](j, 2)
			if err != nil {
				return err
			}
			if err := j.Launch(k, cuda.Blocks1D(2, 2), fencepost.Writes(to), fencepost.Reads(from), fencepost.Value(uint32(2)), fencepost.Value(uint32(1))); err != nil {
				return err
			}
			got, err := fencepost.Download(side, to)
			if !slices.Equal(got, []uint32{2, 3}) {
				t.Errorf("got %v", got)
			}
			return err
		})
		e2e.Succeed(t, "the job", err)
		if st := rt.Streams().Stats(); st.Refused != 0 {
			t.Errorf("a fork counts as %d refusals", st.Refused)
		}
		nothingIsHeld(t, rt)
	}
}

func TestAJobIsRefusedAfterItsEnd(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	k := loadAdd(t, rt)
	var late, side *fencepost.Job
	var kept *cuda.Slice[uint32]
	e2e.Succeed(t, "the job", rt.Do(t.Context(), "job", func(j *fencepost.Job) (err error) {
		late = j
		if kept, err = fencepost.Upload(j, []uint32{1}); err != nil {
			return err
		}
		side, err = j.Fork()
		return err
	}))
	for _, j := range []*fencepost.Job{late, side} {
		for op, err := range callsOf(j, k, kept) {
			misuse, ok := errors.AsType[*core.StreamMisuseError](err)
			if !ok || misuse.Op != op || !misuse.Unleased || misuse.Reason == "" {
				t.Errorf("%s: %v", op, err)
			}
		}
	}
	nothingIsHeld(t, rt)
}

// callsOf makes every call of a job and of its package.
func callsOf(j *fencepost.Job, k *cuda.Kernel, s *cuda.Slice[uint32]) map[string]error {
	return map[string]error{
		"Job.Fork":   e2e.ErrorOf(j.Fork()),
		"Job.Launch": j.Launch(k, cuda.Blocks1D(1, 1)),
		"Alloc":      e2e.ErrorOf(fencepost.Alloc[uint32](j, 1)),
		"Download":   e2e.ErrorOf(fencepost.Download(j, s)),
	}
}

func TestWhatIsNilInAJobIsATypedError(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	var none *fencepost.Runtime
	nothing := func(*fencepost.Job) error { return nil }
	var nilSlice *cuda.Slice[uint32]
	bad := map[string]error{
		"runtime": none.Do(t.Context(), "job", nothing),
		"work":    rt.Do(t.Context(), "job", nil),
		"ctx":     rt.Do(nil, "job", nothing), //nolint:staticcheck // that is what is tested
	}
	e2e.Succeed(t, "the job", rt.Do(t.Context(), "job", func(j *fencepost.Job) error {
		k := loadAdd(t, rt)
		bad["kernel"] = j.Launch(nil, cuda.Blocks1D(1, 1))
		bad["argument 2"] = j.Launch(k, cuda.Blocks1D(1, 1), fencepost.Value(1.5), fencepost.Reads(nilSlice))
		bad["argument 1"] = j.Launch(k, cuda.Blocks1D(1, 1), fencepost.Arg{})
		bad["from"] = e2e.ErrorOf(fencepost.Download(j, nilSlice))
		bad["n"] = e2e.ErrorOf(fencepost.Alloc[uint32](j, -1))
		return nil
	}, nil))
	for op, err := range callsOf(nil, nil, nil) {
		if e, ok := errors.AsType[*core.InvalidRequestError](err); !ok || e.Op != op || e.Field != "job" {
			t.Errorf("%s of a nil job: %v", op, err)
		}
	}
	for field, err := range bad {
		if e, ok := errors.AsType[*core.InvalidRequestError](err); !ok || e.Field != field || e.Reason == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
	if (*fencepost.Job)(nil).Stream() != nil {
		t.Error("a nil job has a stream")
	}
	nothingIsHeld(t, rt)
}

// Values of every size reach the kernel as they are.
func TestAKernelGetsTheValuesThatWereSaid(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	var got string
	m, err := rt.Load("values", nil, sim.Kernel{Name: "values", Run: func(x *sim.Exec) {
		a := x.Args()
		got = fmt.Sprint(a.U32(0), a.I32(1), a.F32(2), a.U64(3), int64(a.U64(4)), a.F64(5), a[6], a[7])
	}})
	e2e.Succeed(t, "loading", err)
	k, err := m.Kernel("values")
	e2e.Succeed(t, "looking the kernel up", err)
	type id uint16
	e2e.Succeed(t, "the job", rt.Do(t.Context(), "job", func(j *fencepost.Job) error {
		return j.Launch(k, cuda.Blocks1D(1, 1), fencepost.Value(uint32(7)), fencepost.Value(int32(-7)), fencepost.Value(float32(0.5)),
			fencepost.Value(uint64(math.MaxUint64)), fencepost.Value(int64(-1)), fencepost.Value(0.25), fencepost.Value(id(9)), fencepost.Value(int8(-1)))
	}))
	if want := "7 -7 0.5 18446744073709551615 -1 0.25 {9 2 false} {255 1 false}"; got != want {
		t.Errorf("the kernel got %s, want %s", got, want)
	}
}

// Many jobs at a time, with more memory and streams asked for than there are:
// all are right, and nothing is left.
func TestManyJobsAtATimeLeaveNothingBehind(t *testing.T) {
	const rows = 256
	rt := e2e.Open(t, fencepost.Config{Streams: 3, Budget: 5 * 8 * rows, Guard: "off"})
	k := loadAdd(t, rt)
	var group sync.WaitGroup
	for g := range uint32(8) {
		group.Go(func() {
			for i := range uint32(20) {
				var got []uint32
				err := rt.Do(t.Context(), "job", func(j *fencepost.Job) (err error) {
					if i%2 == 0 {
						if j, err = j.Fork(); err != nil {
							return err
						}
					}
					got, err = addOn(j, k, slices.Repeat([]uint32{g}, rows), i)
					return err
				}, fencepost.Reserve(8*rows, math.MaxInt64))
				if err != nil || !slices.Equal(got, slices.Repeat([]uint32{g + i}, rows)) {
					t.Errorf("job %d of goroutine %d: wrong, or %v", i, g, err)
				}
			}
		})
	}
	group.Wait()
	nothingIsHeld(t, rt)
}
