package device

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/workload"
)

// ScopeName is the instrumentation scope of the engine's spans.
const ScopeName = "github.com/fencepost-gpu/fencepost/examples/service"

// Engine runs jobs on one runtime. It is safe for concurrent use.
type Engine struct {
	rt      *fencepost.Runtime
	kernels *workload.Kernels
	tracer  trace.Tracer
	// patience is how long a job may wait for memory that others hold.
	patience time.Duration
}

// Config is what an [Engine] is made of.
type Config struct {
	// Runtime is the open stack; it stays the caller's to close. Required.
	Runtime *fencepost.Runtime
	// TracerProvider makes the span of a job's reservation. Required; the
	// runtime has one of its own.
	TracerProvider trace.TracerProvider
	// Patience is how long a job waits for memory before it is refused. Zero
	// refuses at once.
	Patience time.Duration
}

// New loads the kernels. It may block in the driver. The engine must be
// closed, before the runtime.
func New(cfg Config) (*Engine, error) {
	kernels, err := workload.LoadKernels(cfg.Runtime.Driver())
	if err != nil {
		return nil, err
	}
	return &Engine{rt: cfg.Runtime, kernels: kernels, tracer: cfg.TracerProvider.Tracer(ScopeName), patience: cfg.Patience}, nil
}

// Close unloads the kernels. No job may be running, and none may begin. What
// jobs have left on the device when their time was over is waited for until
// ctx ends: kernels that run must not be unloaded.
func (e *Engine) Close(ctx context.Context) error {
	if e.rt.Health().OK {
		if err := e.rt.Drain(ctx); err != nil {
			return err
		}
	}
	return e.kernels.Unload()
}

// MaxJobs is how many jobs can have their streams at a time, if a job takes at
// most jobStreams of them.
func (e *Engine) MaxJobs() int { return max(1, e.rt.Streams().Stats().Max/jobStreams) }

// tag is what the memory of one kind of job is accounted under. Tags are few:
// they are labels of metrics.
type tag = core.Tag

const (
	sortTag tag = "service.sort"
	joinTag tag = "service.join"
)
