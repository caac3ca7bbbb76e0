package device

import (
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/examples/service/kernels"
)

// ScopeName is the instrumentation scope of the engine's spans.
const ScopeName = "github.com/fencepost-gpu/fencepost/examples/service"

// Engine runs jobs on one runtime. It is safe for concurrent use.
type Engine struct {
	rt      *fencepost.Runtime
	kernels *kernels.Kernels
	tracer  trace.Tracer
	// patience is how long a job may wait for memory that others hold.
	patience time.Duration
	plant    plant
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
	// PlantOverrun plants a bug, to practise with: one sort of so many writes one
	// value behind a column. Zero plants none.
	PlantOverrun uint64
}

// New loads the kernels, until the runtime is closed. It may block in the
// driver.
func New(cfg Config) (*Engine, error) {
	module, err := cfg.Runtime.Load("fencepost.examples.service", kernels.PTX, kernels.Twins()...)
	if err != nil {
		return nil, err
	}
	k, err := kernels.Find(module)
	if err != nil {
		return nil, err
	}
	return &Engine{rt: cfg.Runtime, kernels: k, tracer: cfg.TracerProvider.Tracer(ScopeName), patience: cfg.Patience, plant: plant{every: cfg.PlantOverrun}}, nil
}

// jobStreams is the most streams that a job can make use of.
const jobStreams = 2

// MaxJobs is how many jobs can run at a time with a stream for each of their
// parts.
func (e *Engine) MaxJobs() int { return max(1, e.rt.Streams().Stats().Max/jobStreams) }

// The names of the jobs, under which memory is accounted. They are few: they are
// labels of metrics.
const (
	sortJob = "service.sort"
	joinJob = "service.join"
)
