package runtimes_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/pprof"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/pathtest"
)

// hangAfter is far more than any program below takes, on a machine that is busy with others.
const hangAfter = 30 * time.Second

// Programs whose calls have no deadline, and whose driver fails at times, come to an end: nobody
// waits for what nobody will do any more. One that does not shows what everybody waits for.
func TestNobodyWaitsForEverWhereTheDriverFails(t *testing.T) {
	programs := 400
	if testing.Short() {
		programs = 40
	}
	random := rand.New(rand.NewPCG(pathtest.Seed(t), 0))
	for range programs {
		p := &hangProgram{seed: random.Uint64()}
		p.rng = rand.New(rand.NewPCG(p.seed, 0))
		watchdog := time.AfterFunc(hangAfter, func() {
			fmt.Fprintf(os.Stderr, "program %d has hung in %v\n", p.seed, p.doing.what())
			_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
			os.Exit(2) // it cannot be stopped
		})
		p.run(t)
		if watchdog.Stop(); t.Failed() {
			t.Fatalf("in program %d", p.seed)
		}
	}
}

// doing is what each of a program's goroutines does.
type doing struct {
	mu    sync.Mutex
	calls map[int]string
}

func (d *doing) set(worker int, call string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.calls == nil {
		d.calls = map[int]string{}
	}
	d.calls[worker] = call
}

func (d *doing) what() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Sprint(d.calls)
}

type hangProgram struct {
	seed   uint64
	rng    *rand.Rand
	doing  doing
	faults *drivertest.Faults
	rt     *fencepost.Runtime
	// unreleased are the leases whose release has failed.
	unreleased sync.Map
}

func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

// run makes a runtime, has some workers and operators at it, and closes it.
func (p *hangProgram) run(t *testing.T) {
	rng := p.rng
	cfg := sim.Config{Bytes: pick[uint64](rng, 32<<20, 64<<20)}
	if rng.IntN(2) == 0 {
		cfg.Schedule = sim.Seeded(rng.Uint64())
	}
	device, err := sim.Open(cfg)
	e2e.Succeed(t, "opening the device", err)
	p.faults = drivertest.NewFaults(device)
	guard := pick(rng, "hunt:bisect", "hunt:bisect", "hunt", "hunt:bisect+unmap", "sample:1", "off")
	reap := pick[time.Duration](rng, 0, 0, time.Millisecond, -1)
	p.rt, err = fencepost.Open(t.Context(), fencepost.Config{Driver: p.faults, Streams: 4, Guard: fencepost.GuardMode(guard),
		Resource: pick(rng, fencepost.Pool, fencepost.Pool, fencepost.Async), CloseTimeout: 300 * time.Millisecond,
		Pool: cuda.PoolConfig{ReapInterval: reap}, Async: cuda.AsyncConfig{ReapInterval: reap}})
	e2e.Succeed(t, "opening the runtime", err)
	p.plant()
	var workers sync.WaitGroup
	for w := range 1 + rng.IntN(3) {
		seed := rng.Uint64()
		workers.Go(func() { p.work(w, rand.New(rand.NewPCG(seed, 1))) })
	}
	stop, operator := make(chan struct{}), make(chan struct{})
	operate := rand.New(rand.NewPCG(rng.Uint64(), 2))
	go func() {
		defer close(operator)
		p.operate(operate, stop)
	}()
	early := rng.IntN(4) == 0 // Close comes while they are at work
	if !early {
		workers.Wait()
		if rng.IntN(2) == 0 {
			p.doing.set(-2, "Drain")
			_ = p.rt.Drain(context.Background())
		}
	}
	p.doing.set(-2, "Close")
	_, _ = p.rt.Close(context.Background())
	p.doing.set(-2, "closed")
	close(stop)
	<-operator
	workers.Wait()
	p.faults.Clear()
	for lease := range p.unreleased.Range {
		e2e.Succeed(t, "releasing", lease.(*cuda.Lease).Release())
	}
	e2e.Succeed(t, "closing the streams", p.rt.Streams().Close(context.Background())) // what a fault has left
	e2e.Succeed(t, "closing the device", device.Close())
}

// plant has some call of the driver fail, or some.
func (p *hangProgram) plant() {
	rng := p.rng
	method := pick(rng, drivertest.StreamSynchronize, drivertest.StreamSynchronize, drivertest.EventRecord, drivertest.EventQuery, drivertest.StreamWait,
		drivertest.MemUnmap, drivertest.MemMap, drivertest.MemCreate, drivertest.Launch, drivertest.EventCreate, drivertest.StreamDestroy, drivertest.MemFreeAsync)
	for range rng.IntN(4) {
		p.faults.FailMethod(method, 1+uint64(rng.IntN(60)), driver.Unknown)
	}
	switch rng.IntN(4) {
	case 0:
		p.faults.FailEvery(drivertest.StreamSynchronize, driver.Unknown)
	case 1:
		p.faults.FailMethod(drivertest.EventRecord, 1+uint64(rng.IntN(100)), driver.Unknown)
		p.faults.FailMethod(drivertest.StreamSynchronize, 1, driver.Unknown)
	}
}

// work is a worker: jobs with blocks, launches on two streams, and late frees.
func (p *hangProgram) work(number int, rng *rand.Rand) {
	ctx := context.Background()
	doing := func(what string) { p.doing.set(number, what) }
	var late []core.Block
	for range 5 + rng.IntN(20) {
		doing("Acquire")
		lease, err := p.lease(ctx, rng)
		if err != nil {
			break
		}
		for range rng.IntN(6) {
			doing("Allocate")
			b, err := p.rt.Allocate(ctx, core.Request{Bytes: 256 << rng.IntN(13), Stream: lease.ID(), Tag: "work"})
			if err == nil {
				late = append(late, b)
			}
		}
		for range rng.IntN(4) {
			if len(late) == 0 {
				break
			}
			b := late[rng.IntN(len(late))]
			doing("Launch")
			_ = p.rt.Launch(ctx, lease.ID(), []core.Use{{Block: b.ID, Access: pick(rng, core.Read, core.Write)}}, func(context.Context) error {
				return p.rt.Driver().MemsetAsync(b.ID.Ptr, 7, b.Requested, lease.Handle())
			})
		}
		free := func() {
			for len(late) > 0 && rng.IntN(4) > 0 {
				doing("Deallocate")
				_, _ = p.rt.Deallocate(ctx, late[0].ID)
				late = late[1:]
			}
		}
		if rng.IntN(2) == 0 {
			free()
		}
		doing("Release")
		if lease.Release() != nil {
			p.unreleased.Store(lease, nil)
		}
		free()
	}
	for _, b := range late {
		doing("the last Deallocate")
		_, _ = p.rt.Deallocate(ctx, b.ID)
	}
	doing("nothing more")
}

// lease is one of the pool's, or one of a stream of the program's own.
func (p *hangProgram) lease(ctx context.Context, rng *rand.Rand) (*cuda.Lease, error) {
	if rng.IntN(3) > 0 {
		return p.rt.Streams().Acquire(ctx, "work")
	}
	handle, err := p.faults.StreamCreate()
	if err != nil {
		return nil, err
	}
	return p.rt.Streams().Adopt(handle, "work")
}

// operate is somebody who switches the guard, drains, trims and reaps meanwhile.
func (p *hangProgram) operate(rng *rand.Rand, stop <-chan struct{}) {
	ctx := context.Background()
	for {
		select {
		case <-stop:
			p.doing.set(-1, "nothing more")
			return
		case <-time.After(time.Duration(rng.IntN(3000)) * time.Microsecond):
		}
		switch what := rng.IntN(7); what {
		case 0, 1:
			p.doing.set(-1, "SwitchGuard")
			mode := pick[fencepost.GuardMode](rng, "off", "ledger", "sample:1", "hunt", "hunt:bisect", "hunt:bisect+delay")
			_ = p.rt.SwitchGuard(ctx, fencepost.GuardChange{Mode: &mode})
		case 2:
			p.doing.set(-1, "Drain")
			_ = p.rt.Drain(ctx)
		case 3:
			p.doing.set(-1, "TrimPool")
			_ = p.rt.TrimPool(ctx, 0)
		case 4:
			p.doing.set(-1, "ReapPending")
			_ = p.rt.ReapPending(ctx)
		case 5:
			p.doing.set(-1, "CheckLive")
			_ = p.rt.Core().Resource().CheckLive(ctx)
		case 6:
			p.doing.set(-1, "Reserve")
			if c, err := p.rt.Reserve(ctx, 1<<20, "operator"); err == nil {
				_ = p.rt.ReleaseClaim(ctx, c.ID)
			}
		}
	}
}
