package runtimes_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/testkit/pathtest"
)

// deviceLog is a sink of what the device did.
type deviceLog struct {
	mu   sync.Mutex
	done []*oplog.DeviceWork
}

func (d *deviceLog) Put(r logging.Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.Event.Device != nil {
		d.done = append(d.done, r.Event.Device)
	}
}

// all is what was put so far.
func (d *deviceLog) all() []*oplog.DeviceWork {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.done)
}

func (*deviceLog) Flush(context.Context) error { return nil }
func (*deviceLog) Close(context.Context) error { return nil }
func (*deviceLog) Dropped() uint64             { return 0 }

// span is between when something can have begun or ended at the earliest, and at the latest.
type span struct{ first, last time.Time }

// during is when f was called and when it had returned.
func during(f func()) span {
	began := time.Now()
	f()
	return span{began, time.Now()}
}

// jobModel is what a test knows of one job.
type jobModel struct {
	*testing.T
	seed     uint64
	rt       *fencepost.Runtime
	rnd      *rand.Rand
	kernel   *cuda.Kernel
	shared   []*cuda.Slice[byte]
	job      *fencepost.Job
	forks    []*fencepost.Job
	streams  map[core.StreamID]bool
	held     []heldSlice
	called   time.Time
	began    time.Time // its function
	ended    time.Time
	mayWait  time.Duration
	reserved uint64
	guarded  bool // then the guard launches too

	live, most, allocated, blocks, launches uint64
	// least and longest are bytes times seconds of what was freed.
	least, longest float64
}

type heldSlice struct {
	slice *cuda.Slice[byte]
	span
}

const reservedByModels = 60_000

// run is a random program of one job.
func (m *jobModel) run(name string) {
	var options []fencepost.JobOption
	if m.rnd.IntN(2) == 0 {
		m.reserved = reservedByModels
		options = append(options, fencepost.Reserve(m.reserved, time.Minute))
	}
	m.called = time.Now()
	finished := time.Time{}
	err := m.rt.Do(m.Context(), name, func(j *fencepost.Job) error {
		m.began = time.Now()
		m.mayWait = m.began.Sub(m.called)
		m.job, m.forks, m.streams = j, []*fencepost.Job{j}, map[core.StreamID]bool{j.Stream().ID(): true}
		for range 10 + m.rnd.IntN(20) {
			if err := m.step(); err != nil {
				return err
			}
			m.compare(time.Time{})
		}
		finished = time.Now()
		return nil
	}, options...)
	ended := time.Now()
	if err != nil {
		m.Errorf("seed %d: %v", m.seed, err)
		return
	}
	for _, h := range m.held {
		m.freed(h, span{finished, ended})
	}
	m.held, m.ended = nil, ended
	m.compare(ended)
	first := m.job.Account()
	time.Sleep(time.Microsecond)
	if again := m.job.Account(); again.Elapsed != first.Elapsed || again.UnusedByteSeconds != first.UnusedByteSeconds || again.ByteSeconds != first.ByteSeconds {
		m.Errorf("seed %d: a job that has ended goes on: %+v, %+v", m.seed, first, again)
	}
}

func (m *jobModel) step() error {
	on := m.forks[m.rnd.IntN(len(m.forks))]
	switch do := m.rnd.IntN(10); {
	case do < 4:
		return m.alloc(on, 1+m.rnd.IntN(20_000))
	case do < 6 && len(m.held) > 0:
		return m.free(m.rnd.IntN(len(m.held)))
	case do == 6:
		fork, err := m.job.Fork()
		if err != nil {
			return err
		}
		m.forks = append(m.forks, fork)
		m.streams[fork.Stream().ID()] = true
	default:
		args := []fencepost.Arg{fencepost.Value(uint64(m.rnd.IntN(1000)))}
		for _, s := range m.shared {
			switch m.rnd.IntN(3) {
			case 0:
				args = append(args, fencepost.Reads(s))
			case 1:
				args = append(args, fencepost.Writes(s))
			}
		}
		if len(m.held) > 0 {
			args = append(args, fencepost.Writes(m.held[m.rnd.IntN(len(m.held))].slice))
		}
		m.launches++
		return on.Launch(m.kernel, cuda.Blocks1D(1, 1), args...)
	}
	return nil
}

func (m *jobModel) alloc(on *fencepost.Job, n int) error {
	var slice *cuda.Slice[byte]
	var err error
	at := during(func() { slice, err = fencepost.Alloc[byte](on, n) })
	m.mayWait += at.last.Sub(at.first)
	if errors.Is(err, core.ErrClaimExceeded) {
		return nil
	}
	if err != nil {
		return err
	}
	m.held = append(m.held, heldSlice{slice, at})
	m.live += uint64(n)
	m.most = max(m.most, m.live)
	m.allocated += uint64(n)
	m.blocks++
	return nil
}

// free frees on another goroutine.
func (m *jobModel) free(at int) (err error) {
	h := m.held[at]
	m.held[at] = m.held[len(m.held)-1]
	m.held = m.held[:len(m.held)-1]
	bySlice := m.rnd.IntN(2) == 0
	m.freed(h, during(func() {
		var work sync.WaitGroup
		work.Go(func() {
			if bySlice {
				err = h.slice.Free(m.Context())
			} else {
				_, err = m.rt.Deallocate(m.Context(), h.slice.BlockID())
			}
		})
		work.Wait()
	}))
	return err
}

func (m *jobModel) freed(h heldSlice, at span) {
	m.live -= uint64(h.slice.Len())
	m.least += float64(h.slice.Len()) * max(0, at.first.Sub(h.last).Seconds())
	m.longest += float64(h.slice.Len()) * at.last.Sub(h.first).Seconds()
}

// compare compares the job's account with the model, of one that has ended, or goes on if that is zero.
func (m *jobModel) compare(ended time.Time) {
	m.Helper()
	asked := time.Now()
	got := m.job.Account()
	answered := time.Now()
	least, longest := m.least, m.longest
	for _, h := range m.held {
		least += float64(h.slice.Len()) * asked.Sub(h.last).Seconds()
		longest += float64(h.slice.Len()) * answered.Sub(h.first).Seconds()
	}
	lastly := answered
	if !ended.IsZero() {
		asked, lastly = m.began, ended // it may have taken as short as that
	}
	const clock = 100 * time.Microsecond // the error of many readings
	off := float64(m.allocated+m.reserved) * clock.Seconds()
	waited := got.WaitedForMemory + got.WaitedForStream
	for what, wrong := range map[string]bool{
		"the peak":        got.Requested != m.most || got.Bytes < m.most,
		"the allocations": got.Allocated.Requested != m.allocated || got.Allocated.Blocks != m.blocks || got.Allocated.Bytes < m.allocated,
		"the reservation": got.Reserved != m.reserved,
		"the launches":    got.Launches < m.launches || got.Launches > m.launches && !m.guarded || got.TimedLaunches > got.Launches,
		"the time":        got.Elapsed < asked.Sub(m.began)-clock || got.Elapsed > lastly.Sub(m.called)+clock,
		"byte-seconds":    got.RequestedSeconds < least-off || got.RequestedSeconds > longest+off || got.ByteSeconds < got.RequestedSeconds-off,
		"what was unused": m.reserved == 0 && got.UnusedByteSeconds != 0 || m.reserved > 0 && got.UnusedByteSeconds > float64(m.reserved)*lastly.Sub(m.called).Seconds()-least+off ||
			m.reserved > 0 && ended.IsZero() && got.UnusedByteSeconds < float64(m.reserved)*asked.Sub(m.began).Seconds()-longest-off,
		"the waits": waited < 0 || waited > m.mayWait+clock,
	} {
		if wrong {
			m.Errorf("seed %d: %s differs: %+v, want a peak of %d, %d of %d blocks allocated, %d launches, %g to %g byte-seconds, and waits within %v",
				m.seed, what, got, m.most, m.allocated, m.blocks, m.launches, least, longest, m.mayWait)
		}
	}
}

// heldByOthers is how long the device says that launches and allocations of the model's job stood behind others' work.
func (m *jobModel) heldByOthers(did []*oplog.DeviceWork) (held time.Duration, launches uint64) {
	for _, w := range did {
		if !m.streams[w.Stream] {
			continue
		}
		behind := false
		for i := range w.Waits {
			if of := &w.Waits[i]; !m.streams[of.Stream] {
				held += max(0, of.Held)
				behind = behind || of.Held < 0
			}
		}
		if behind {
			held += w.Unattributed
		}
		if w.Launch != 0 {
			launches++
		}
	}
	return held, launches
}

// Jobs of random programs, with reservations, forks, frees by other goroutines and launches that wait for each other's,
// run beside each other on fewer streams than they would have.
func TestJobAccountsAreThoseOfAModel(t *testing.T) {
	seed := pathtest.Seed(t)
	for _, backend := range []fencepost.Backend{fencepost.Async, fencepost.Pool} {
		for _, guard := range []fencepost.GuardMode{fencepost.GuardOff, fencepost.GuardHunt} {
			t.Run(fmt.Sprint(backend, " ", guard), func(t *testing.T) { modelJobs(t, seed, backend, guard) })
		}
	}
}

func modelJobs(t *testing.T, seed uint64, backend fencepost.Backend, guard fencepost.GuardMode) {
	device := must.Get(sim.Open(sim.Config{Bytes: 256 << 20, Schedule: sim.Seeded(seed)}))(t)
	t.Cleanup(func() { expect.Success(t, device.Close()) })
	takes := func(a sim.Args) time.Duration { return time.Duration(a.U64(0)) * time.Microsecond }
	must.Do(t, device.RegisterModule("busy", sim.Kernel{Name: "busy", Run: func(*sim.Exec) {}, Takes: takes}))
	var log deviceLog
	rt := e2e.Open(t, fencepost.Config{Driver: device, Resource: backend, Guard: guard, Streams: 6, Budget: 4*reservedByModels + 8<<20, TimeOneIn: 1, LogLevel: logging.Uses, LogSinks: []logging.Sink{&log}})
	kernel := must.Get(must.Get(rt.Load("busy", nil))(t).Kernel("busy"))(t)
	var shared []*cuda.Slice[byte]
	for range 3 {
		s := must.Get(cuda.Alloc[byte](t.Context(), rt.Memory(), 64, cuda.AllocOptions{Tag: "shared"}))(t)
		shared = append(shared, s)
		t.Cleanup(func() { expect.Success(t, s.Free(context.Background())) })
	}
	must.Do(t, rt.Do(t.Context(), "first", func(j *fencepost.Job) error {
		return j.Launch(kernel, cuda.Blocks1D(1, 1), fencepost.Value(uint64(1)), fencepost.Writes(shared[0]), fencepost.Writes(shared[1]), fencepost.Writes(shared[2]))
	}))
	var work sync.WaitGroup
	var all [4][8]*jobModel
	for w := range all {
		work.Go(func() {
			for i := range all[w] {
				m := &jobModel{T: t, seed: seed, rt: rt, rnd: rand.New(rand.NewPCG(seed, uint64(8*w+i))), kernel: kernel, shared: shared, guarded: guard != fencepost.GuardOff}
				all[w][i] = m
				if m.run(fmt.Sprint("job", w)); m.Failed() {
					return
				}
			}
		})
	}
	if work.Wait(); t.Failed() {
		return
	}
	for range 6 { // the streams have other work then, which is no job's
		on := must.Get(rt.Streams().Acquire(t.Context(), "other"))(t)
		t.Cleanup(func() { expect.Success(t, on.Release()) })
		must.Do(t, kernel.Launch(t.Context(), rt, on, cuda.Blocks1D(1, 1), []core.Use{shared[0].Use(core.Write)}, driver.U64(1)))
	}
	limit, done := context.WithTimeout(t.Context(), 20*time.Second)
	defer done()
	// On a busy machine the times of some launches are lost.
	lost := func() uint64 { return uint64(e2e.Scrape(t, rt)["gpumem_device_times_lost_total"]) }
	var missing uint64
	for _, worker := range all {
		for _, m := range worker {
			var got core.JobAccount
			if m.compare(m.ended); t.Failed() {
				return
			}
			err := deadline.Poll(limit, func() (bool, error) {
				got = m.job.Account()
				return got.TimedLaunches == got.Launches || got.TimedLaunches+lost() >= got.Launches, rt.ReapPending(limit)
			})
			missing += got.Launches - got.TimedLaunches
			held, launches := m.heldByOthers(log.all())
			if err != nil || launches != got.TimedLaunches || missing > lost() || got.WaitedOnDevice != held {
				t.Errorf("seed %d: the device held the job up for %v in %d launches, and it has %+v, %v", seed, held, launches, got, err)
			}
		}
	}
}

// A job waits for its reservation, its stream and the room for an allocation, each for some milliseconds at least.
func TestAJobAccountsForEachOfItsWaits(t *testing.T) {
	const pause = 3 * time.Millisecond
	rt := e2e.Open(t, fencepost.Config{Resource: fencepost.Async, Budget: 8 << 20, Guard: "off", Streams: 1})
	ctx := t.Context()
	reserved := must.Get(rt.Reserve(ctx, 6<<20, "other"))(t)
	lease := must.Get(rt.Streams().Acquire(ctx, "other"))(t)
	until := func(waits func() bool) {
		expect.Success(t, deadline.Poll(ctx, func() (bool, error) { return waits(), nil }))
		time.Sleep(pause)
	}
	var helper sync.WaitGroup
	helper.Go(func() {
		until(func() bool { return rt.Waiting() == 1 })
		expect.Success(t, rt.ReleaseClaim(ctx, reserved.ID))
		until(func() bool { return rt.Streams().Stats().Waiting == 1 })
		expect.Success(t, lease.Release())
	})
	err := rt.Do(ctx, "waits", func(j *fencepost.Job) error {
		a := j.Account()
		if a.WaitedForMemory < pause || a.WaitedForStream < pause || a.WaitedForMemory+a.WaitedForStream > a.Elapsed {
			t.Errorf("the job waited for %v and %v of %v", a.WaitedForMemory, a.WaitedForStream, a.Elapsed)
		}
		return nil
	}, fencepost.Reserve(4<<20, time.Minute))
	helper.Wait()
	expect.Success(t, err)
}

// What is freed on another stream is pending until that goes on: an allocation waits, at no lower bound of time.
func TestAJobAccountsForTheWaitsOfItsAllocations(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Resource: fencepost.Async, Budget: 8 << 20, Guard: "off", Patience: time.Minute})
	stalled := e2e.Lease(t, rt, "stalled")
	release := e2e.Hold(t, rt, stalled.Handle())
	e2e.Free(t, rt, e2e.Allocate(t, rt, 6<<20, stalled.ID(), "old"))
	expect.Success(t, rt.Do(t.Context(), "waits", func(j *fencepost.Job) error {
		time.AfterFunc(3*time.Millisecond, release)
		_, err := fencepost.Alloc[byte](j, 4<<20)
		if waited, want := j.Account().WaitedForMemory, rt.Stats().MemoryWaitTime; waited != want {
			t.Errorf("the allocation waited for %v, and the job has %v", want, waited)
		}
		return err
	}))
}
