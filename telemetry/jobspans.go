package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
)

// Jobs makes a [SpanJob] of each job on one device.
type Jobs struct{ tracing *tracing }

// NewJobs returns what makes the spans of jobs on the device of that ordinal, at [LevelOperations] and [LevelLaunches].
func NewJobs(cfg Config, ordinal int) Jobs { return Jobs{cfg.tracing(ordinal)} }

// Job is a job under way. The zero Job has no span.
type Job struct {
	tracing *tracing
	span    trace.Span
	root    *declinedRoot
}

// Begin begins the span of a job, if the caller's trace is sampled, or else if the sampler takes the trace that the job
// begins. The context is for the job's operations, and tells them so in either case. It allocates nothing where the
// caller's trace is not sampled.
func (j Jobs) Begin(ctx context.Context) (context.Context, Job) {
	t := j.tracing
	inside, as := t.admit(ctx, LevelLaunches, nil)
	switch {
	case as == declined:
		root := t.roots.decline(ctx)
		return root, Job{root: root}
	case as.starts():
		under, span := t.start(inside, SpanJob, as)
		if o, ok := under.(*operation); ok {
			o.traced = false // a job is no operation of the layers
		}
		return under, Job{tracing: t, span: span}
	}
	return ctx, Job{}
}

// Uncancelled is the context that Begin returned, without its end, for what comes after the job's work.
func (j *Job) Uncancelled(inside context.Context) context.Context {
	if j.root == nil {
		return context.WithoutCancel(inside)
	}
	d := j.root
	return &declinedRoot{Context: context.WithoutCancel(d.Context), of: d.of, high: d.high, seed: d.seed + d.state.Load()&^1}
}

// Span is the job's, zero if it is not exported.
func (j *Job) Span() core.SpanRef {
	if j.span == nil {
		return core.SpanRef{}
	}
	return spanRef(j.span)
}

// End ends the span with the job's bill and its error. The context must not be used afterwards.
func (j *Job) End(name core.Tag, a *core.JobAccount, err error) {
	if j.root != nil {
		j.root.done()
	}
	if j.span == nil {
		return
	}
	attrs := append(scratch(), j.tracing.device, text(AttrTag, string(name.OrUntagged())),
		number(AttrPeakRequested, a.Requested), number(AttrPeakBytes, a.Bytes), AttrByteSeconds.Float64(a.ByteSeconds),
		number(AttrAllocatedBytes, a.Allocated.Bytes), number(AttrAllocatedBlocks, a.Allocated.Blocks),
		nanoseconds(AttrWaitMemory, a.WaitedForMemory), nanoseconds(AttrWaitStream, a.WaitedForStream), nanoseconds(AttrWaitDevice, a.WaitedOnDevice),
		number(AttrLaunches, a.Launches), number(AttrTimedLaunches, a.TimedLaunches))
	if a.Predicted > 0 {
		attrs = append(attrs, number(AttrPredicted, a.Predicted))
	}
	if a.Reserved > 0 {
		attrs = append(attrs, number(AttrReserved, a.Reserved), AttrUnusedByteSeconds.Float64(a.UnusedByteSeconds))
	}
	set(j.span, SpanJob, j.tracing.tagged(SpanJob, name), attrs)
	j.tracing.endSpan(j.span, err)
}
