package fencepost

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
)

// Job is the work of one [Runtime.Do]: a stream, and the memory that was
// allocated through it. It and its forks belong to one goroutine, and end when
// the function returns that they were given to: every call after that is
// refused with a [core.StreamMisuseError], and with its context the calls end
// too.
type Job struct {
	state *jobState
	on    *jobStream
}

// jobState is what a job shares with its forks.
type jobState struct {
	rt      *Runtime
	ctx     context.Context
	tag     core.Tag
	claim   core.Claim
	streams []*jobStream
	blocks  []core.BlockID // in the order in which they were allocated
	ended   atomic.Bool
	calls   launchLists
}

// jobStream is one lease of a job.
type jobStream struct {
	lease *cuda.Lease
	// busy: something was enqueued that was not waited for. handed: the lease
	// was given out, so that nobody knows.
	busy, handed bool
}

// JobOption is an option of [Runtime.Do]; see [Reserve].
type JobOption func(*jobOptions)

// Do runs work on the device. It leases a stream, waiting for one until ctx
// ends, calls work on this goroutine, and waits until the device has done what
// work enqueued: when Do returns nil, all of it is done, and what was uploaded
// may be changed. Whatever happens, an error, a panic (which goes on to the
// caller), runtime.Goexit or the end of ctx, the memory that was allocated
// through the job is freed, and the stream and the reservation are given back.
//
//	var sum []float32
//	err := rt.Do(ctx, "vector.add", func(j *fencepost.Job) error {
//		x, err := fencepost.Upload(j, xs)
//		if err != nil {
//			return err
//		}
//		y, err := fencepost.Upload(j, ys)
//		if err != nil {
//			return err
//		}
//		if err := j.Launch(add, cuda.Blocks1D(n, 256), fencepost.Reads(x), fencepost.ReadWrites(y), fencepost.Value(uint32(n))); err != nil {
//			return err
//		}
//		sum, err = fencepost.Download(j, y)
//		return err
//	})
//
// The name is the tag of the memory and of the lease, and so a label of metrics
// and traces: it comes from a small fixed set and carries no identifiers.
//
// Errors are those of work; [core.OutOfBudgetError] if a reservation is refused;
// [cuda.ErrNoStream] together with ctx's; those of the driver; ctx's; and
// [core.InvalidRequestError] for work that is nil. If ctx ends before the device
// is done, or work panics, Do does not wait for it: what was uploaded must then
// not be changed, though the runtime keeps it in place, and the memory is freed
// behind the work that uses it.
//
// A job that calls Do again holds a stream while it waits for another one.
func (r *Runtime) Do(ctx context.Context, name string, work func(*Job) error, options ...JobOption) (err error) {
	if r == nil || ctx == nil || work == nil {
		return nilInJob(r, work)
	}
	j, err := r.begin(ctx, core.Tag(name), options)
	if err != nil {
		return err
	}
	defer func() { err = also(err, j.end()) }()
	if err = work(j); err == nil {
		return j.wait()
	}
	_ = j.wait() // the caller gets its host memory back; why work failed says more
	return err
}

func nilInJob(r *Runtime, work func(*Job) error) error {
	const op = "Do"
	switch {
	case r == nil:
		return core.Missing(op, "runtime", "use what fencepost.Open returned, and see to its error")
	case work == nil:
		return core.Missing(op, "work", "pass the function that does the work")
	}
	return core.Missing(op, "ctx", "pass the request's context, or context.Background()")
}

// begin reserves memory and leases a stream, in this order: a job that waits
// for memory holds none. After an error nothing is held.
func (r *Runtime) begin(ctx context.Context, tag core.Tag, options []JobOption) (*Job, error) {
	s := &jobState{rt: r, ctx: ctx, tag: tag}
	o := newJobOptions(options)
	if o.reserve {
		claim, err := r.reserveWithin(ctx, o.bytes, tag, o.wait)
		if err != nil {
			return nil, err
		}
		s.claim = claim
	}
	lease, err := r.streams.Acquire(ctx, tag)
	if err != nil {
		return nil, also(err, s.end())
	}
	return s.on(lease), nil
}

// on is the job on another stream.
func (s *jobState) on(lease *cuda.Lease) *Job {
	on := &jobStream{lease: lease}
	s.streams = append(s.streams, on)
	return &Job{state: s, on: on}
}

// Fork returns the job on a stream of its own: what is done through the fork
// and what is done through j run beside each other, and where they use the same
// memory the runtime queues the waits between them. If no stream is free the
// fork is on j's stream: it is done in turn then, and no job waits for a stream
// while it holds one. A fork ends with the job. It may block in the driver, which
// makes the stream.
func (j *Job) Fork() (*Job, error) {
	if err := j.check("Job.Fork"); err != nil {
		return nil, err
	}
	pool := j.state.rt.streams
	if st := pool.Stats(); st.Leased >= st.Max { // without a refusal to count
		return &Job{state: j.state, on: j.on}, nil
	}
	lease, err := pool.TryAcquire(j.state.ctx, j.state.tag)
	if errors.Is(err, cuda.ErrNoStream) {
		return &Job{state: j.state, on: j.on}, nil
	}
	if err != nil {
		return nil, err
	}
	return j.state.on(lease), nil
}

// Stream is the job's stream, for copies, graphs and launches that a Job has no
// call for. What was allocated for them elsewhere is not freed with the job. It
// must not be released. Nil of a nil Job.
func (j *Job) Stream() *cuda.Lease {
	if j == nil {
		return nil
	}
	j.on.handed = true
	return j.on.lease
}

// check refuses work of a job that has ended, or whose time is over.
func (j *Job) check(op string) error {
	if j == nil {
		return core.Missing(op, "job", "use the job that Do passes to its function")
	}
	s := j.state
	if s.ended.Load() {
		return &core.StreamMisuseError{Op: op, Stream: j.on.lease.ID(), Unleased: true,
			Reason: fmt.Sprintf("the job %q has ended, and its stream and memory were given back: a Job is good until the function returns that Do was given", s.tag.OrUntagged())}
	}
	if err := s.ctx.Err(); err != nil {
		return fmt.Errorf("%s of the job %q was not begun: %w", op, s.tag.OrUntagged(), err)
	}
	return nil
}
