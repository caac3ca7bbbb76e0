package gputest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/telemetry/explain"
)

// contention is a bench whose launches take as long as they are told, in traces of their own.
type contention struct {
	*bench
	kernel   *cuda.Kernel
	provider *sdktrace.TracerProvider
	leases   []*cuda.Lease
	times    []*words // what the kernel writes, of each stream
}

// request is the context of a new trace, and its number.
func (c *contention) request() (context.Context, [16]byte) {
	ctx, span := c.provider.Tracer("test").Start(ctx, "request", trace.WithNewRoot())
	defer span.End()
	return ctx, span.SpanContext().TraceID()
}

func (c *contention) launch(ctx context.Context, name string, on int, takes time.Duration, uses ...core.Use) {
	c.Helper()
	l, times := c.leases[on], c.times[on]
	must(c, c.LaunchNamed(ctx, name, l.ID(), append(uses, times.Use(core.Write)), func(context.Context) error {
		return c.kernel.Enqueue(l.Handle(), cuda.Blocks1D(1, 1), driver.U64(uint64(takes)), driver.Ptr(times.Ptr()))
	}))
}

// The size of the pool, and of a block beside which there is no room for another of that size.
const (
	smallPool = 64 << 20
	mostOfIt  = 48 << 20 / 8
)

// Of contentions that are planted on the device, in one of four ways, each is explained: the launch, its request, the
// block, the reason and how long it was.
func TestPlantedContentionsAreExplained(t *testing.T) {
	c := &contention{provider: sdktrace.NewTracerProvider()}
	c.bench = newBench(t, fencepost.Config{Guard: "off", TracerProvider: c.provider, Resource: fencepost.Pool, Pool: cuda.PoolConfig{Limit: smallPool}})
	if dryRun {
		must(t, c.hw.sim.RegisterModule(clocked.Name, clockedOnSim()))
	}
	module, err := cuda.LoadModule(c.Driver(), clocked)
	must(t, err)
	defer func() { must(t, module.Unload()) }()
	c.kernel, err = module.Kernel("clocked")
	must(t, err)
	c.leases = c.bench.leases(4)
	for _, l := range c.leases {
		c.times = append(c.times, c.alloc(l, 2, "times"))
	}
	index, mine := c.alloc(c.leases[0], 64, "index"), c.alloc(c.leases[2], 64, "mine")
	seed := firstSeed(t)
	random := rand.New(rand.NewPCG(seed, 34))
	for i := range 24 {
		c.isExplained(i, time.Duration(4_000+random.IntN(16_000))*time.Microsecond, index, mine)
		must(t, c.Driver().Synchronize())
	}
	c.give(append(c.times, index, mine))
}

// isExplained plants a contention of the i-th kind, in which a launch takes so long.
func (c *contention) isExplained(i int, takes time.Duration, index, mine *words) {
	c.Helper()
	const short = 300 * time.Microsecond
	guilty, of := c.request()
	victim, number := c.request()
	access := [][2]core.Access{{core.Write, core.Read}, {core.Read, core.Write}, {core.ReadWrite, core.Write}}[i/4%3]
	merge, kind, tag := fmt.Sprintf("merge%d", i), explain.Held, core.Tag("index")
	var batch *words
	switch i % 4 {
	case 0: // data
		c.launch(guilty, merge, 1, takes, index.Use(access[0]))
		c.launch(victim, "query", 2, short, index.Use(access[1]))
	case 1: // data, and what follows is on another stream
		c.launch(guilty, merge, 1, takes, index.Use(access[0]))
		c.launch(victim, "query", 2, short, index.Use(access[1]), mine.Use(core.Write))
		c.launch(victim, "rank", 3, short, mine.Use(core.Read))
	case 2: // behind it on its stream
		kind, tag = explain.Queued, ""
		c.launch(guilty, merge, 1, takes, index.Use(access[0]))
		c.launch(victim, "query", 1, short)
	case 3: // memory that it uses still
		tag = "query.batch"
		whole, err := cuda.Alloc[uint64](guilty, c.Memory(), mostOfIt, cuda.AllocOptions{Stream: c.leases[1].ID(), Tag: "train.batch"})
		must(c, err)
		c.launch(guilty, merge, 1, takes, whole.Use(core.Write))
		must(c, whole.Free(guilty))
		batch, err = cuda.Alloc[uint64](victim, c.Memory(), mostOfIt, cuda.AllocOptions{Stream: c.leases[2].ID(), Tag: tag})
		must(c, err)
		c.launch(victim, "query", 2, short, batch.Use(core.Write))
	}
	must(c, c.Driver().Synchronize())
	must(c, c.ReapPending(ctx))
	if batch != nil {
		must(c, batch.Free(ctx))
	}
	e, err := c.Explain(number)
	must(c, err)
	worst := e.Worst()
	switch {
	case worst == nil || worst.Kind != kind || worst.For.Name != merge || worst.For.Span.TraceID != of:
		c.Errorf("planted contention %d: %s", i, e.String())
		return
	case kind == explain.Held && worst.Wait.Tag != tag:
		c.Errorf("planted contention %d is because of %q: %s", i, worst.Wait.Tag, e.String())
	}
	if took := worst.Took(); !dryRun && (took > takes+50*time.Microsecond || took < takes-2*time.Millisecond) {
		c.Errorf("planted contention %d took %v, the launch %v: %s", i, took, takes, e.String())
	}
	c.Logf("%d: %v of %v: %s", i, worst.Took(), takes, e.Sentence())
}
