package stackconformance_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/workload"
)

const unmapping = "hunt:unmap"

// patience is how long work may be stuck behind a fault that stops it before the
// fault is ended. It decides what is tested and never what is right.
const patience = 30 * time.Millisecond

// scene is a runtime over a device that can be made to fail, with work of its
// own beside the demo's: residents, which are held from one quiet point to the
// next, so that the books are not compared while they are empty.
type scene struct {
	*testing.T
	rng    *rand.Rand
	device *sim.Device
	faults *drivertest.Faults
	rt     *fencepost.Runtime
	// streams are the residents'; more makes the pool make new ones.
	streams, more []*cuda.Lease
	residents     []*cuda.Slice[uint32]
	claim         core.Claim
	maps          bool // some blocks have mappings of their own
	// used counts the residents' operations on each stream.
	used map[core.StreamID]uint64
	// calls are those that the last work made.
	calls map[drivertest.Method]uint64
}

// newScene opens a runtime with the guard in a mode. The schedule is seeded in
// every other one.
func newScene(t *testing.T, guard string, rng *rand.Rand) *scene {
	t.Helper()
	schedule := sim.FreeRunning()
	if rng.IntN(2) == 0 {
		schedule = sim.Seeded(rng.Uint64())
	}
	device, err := sim.Open(sim.Config{Bytes: 64 << 20, Schedule: schedule})
	must.Do(t, err)
	s := &scene{T: t, rng: rng, device: device, faults: drivertest.NewFaults(device), used: map[core.StreamID]uint64{}, calls: map[drivertest.Method]uint64{}}
	cfg := fencepost.Config{Driver: s.faults, Guard: fencepost.GuardMode(guard), Budget: limit, Streams: 128, Async: cuda.AsyncConfig{IsolatedAddresses: 1},
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.TraceIDRatioBased(0.5)))} // launches that are sampled are timed
	if guard == unmapping { // of a whole granule each block, which is compared to the last byte
		s.maps = true
		cfg.GuardConfig.HuntTags = []core.Tag{tagOf(0), tagOf(1)}
	}
	s.rt, err = fencepost.Open(t.Context(), cfg)
	s.must(err)
	for i := range 3 {
		lease, err := s.rt.Streams().Acquire(t.Context(), core.Tag(fmt.Sprint("resident.", i)))
		s.must(err)
		s.streams = append(s.streams, lease)
	}
	s.claim, err = s.rt.Reserve(t.Context(), 64<<10, "resident.claim")
	s.must(err)
	return s
}

func (s *scene) must(err error) {
	s.Helper()
	must.Do(s, err)
}

// within draws a number from 1 to n.
func (s *scene) within(n uint64) uint64 { return 1 + s.rng.Uint64N(n) }

func (s *scene) anyStream() *cuda.Lease { return s.streams[s.rng.IntN(len(s.streams))] }

// spoil runs work under a fault and ends the fault when the work is done, or may
// be stuck.
func (s *scene) spoil(f fault) {
	heal := sync.OnceFunc(f.inject(s))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.work()
		if s.maps { // only what leaves quarantine is unmapped
			_ = s.inTime(s.rt.Drain)
		}
	}()
	if f.blocks {
		select {
		case <-done:
		case <-time.After(patience):
		}
		heal()
	}
	<-done
	heal()
}

// work is the demo's, and the coming and going of residents beside it, with one
// lease more each time. Any of it ends at what the fault does to it, which is
// not this test's business: what is held must be in the books. The error is the
// demo's.
func (s *scene) work() error {
	ctx := context.Background()
	defer s.count()()
	seed, rng := s.rng.Uint64(), rand.New(rand.NewPCG(s.rng.Uint64(), 0))
	if more, err := s.rt.Streams().TryAcquire(ctx, "more"); err == nil {
		s.more = append(s.more, more)
	}
	var group sync.WaitGroup
	group.Go(func() {
		for range 12 {
			s.come(ctx, rng)
			s.part(ctx, rng)
		}
		_ = s.rt.TrimPool(ctx, 0)
	})
	w, err := workload.New(workload.Env{Driver: s.rt.Driver(), Runtime: s.rt.Core(), Streams: s.rt.Streams(), Memory: s.rt.Memory()},
		workload.Config{Goroutines: 2, Iterations: 1, Rounds: 1, Rows: 64, Seed: seed})
	if err == nil {
		_, err = w.Run(ctx)
	}
	group.Wait()
	return err
}

// count notes the driver calls between it and what it returns.
func (s *scene) count() (end func()) {
	before := map[drivertest.Method]uint64{}
	for _, m := range drivertest.Methods() {
		before[m] = s.faults.Calls(m)
	}
	return func() {
		for _, m := range drivertest.Methods() {
			s.calls[m] = s.faults.Calls(m) - before[m]
		}
	}
}

// come allocates a resident, every third one from the claim, and uses it on
// two streams.
func (s *scene) come(ctx context.Context, rng *rand.Rand) {
	on, other := s.streams[rng.IntN(len(s.streams))], s.streams[rng.IntN(len(s.streams))]
	options := cuda.AllocOptions{Stream: on.ID(), Tag: tagOf(rng.IntN(5))}
	if rng.IntN(3) == 0 {
		options.Claim = s.claim.ID
	}
	r, err := cuda.Alloc[uint32](ctx, s.rt.Memory(), 1+rng.IntN(2000), options)
	if err != nil {
		return
	}
	s.residents = append(s.residents, r)
	s.used[on.ID()]++
	_ = cuda.Memset(ctx, r, on.ID(), 1)
	_ = cuda.CopyOnDevice(ctx, r, r, other.ID())
}

// part frees a resident, if there are many. A free that fails leaves it one.
func (s *scene) part(ctx context.Context, rng *rand.Rand) {
	if len(s.residents) < 20 {
		return
	}
	i := rng.IntN(len(s.residents))
	if s.residents[i].Free(ctx) == nil {
		s.residents = append(s.residents[:i], s.residents[i+1:]...)
	}
}

func tagOf(n int) core.Tag { return core.Tag(fmt.Sprint("resident.", n)) }
