package device

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// jobStreams is the most streams that a job leases.
const jobStreams = 2

// wordBytes is the size of a column's value.
const wordBytes = 4

type column = cuda.Slice[uint32]

// job is one request's work on the device. It belongs to one goroutine.
type job struct {
	engine  *Engine
	tag     tag
	claim   core.Claim
	streams []*cuda.Lease
	columns []*column
	uses    []core.Use // of one launch at a time
}

// begin reserves words of device memory and leases streams, in this order: a
// job that waits for memory holds none. After an error nothing is held.
func (e *Engine) begin(ctx context.Context, tag tag, words uint64, streams int) (*job, error) {
	claim, err := e.reserve(ctx, words*wordBytes, tag)
	if err != nil {
		return nil, err
	}
	j := &job{engine: e, tag: tag, claim: claim}
	for range streams {
		lease, err := e.rt.Streams().Acquire(ctx, tag)
		if err != nil {
			return nil, errors.Join(err, j.end(ctx))
		}
		j.streams = append(j.streams, lease)
	}
	return j, nil
}

// end gives everything back, and goes on past errors and the end of ctx: a
// client that went away must not cost memory. It does not wait for the device.
func (j *job) end(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // the spans still belong to the request
	var errs []error
	for _, col := range j.columns {
		errs = append(errs, free(ctx, col))
	}
	for _, lease := range j.streams {
		errs = append(errs, lease.Release())
	}
	return errors.Join(append(errs, j.engine.rt.ReleaseClaim(ctx, j.claim.ID))...)
}

// free gives a column back. A free that the driver refused has changed
// nothing, so it is asked once more: nobody else is going to.
func free(ctx context.Context, col *column) error {
	first := col.Free(ctx)
	if first == nil {
		return nil
	}
	if err := col.Free(ctx); err != nil {
		return fmt.Errorf("a column is lost until the service ends: %w", err)
	}
	slog.WarnContext(ctx, "the free of a column had to be repeated", "error", first)
	return nil
}

// alloc allocates a column of n values on the stream, from the reservation.
func (j *job) alloc(ctx context.Context, on *cuda.Lease, n int) (*column, error) {
	col, err := cuda.Alloc[uint32](ctx, j.engine.rt.Memory(), n, cuda.AllocOptions{Stream: on.ID(), Tag: j.tag, Claim: j.claim.ID})
	if err != nil {
		return nil, err
	}
	j.columns = append(j.columns, col)
	return col, nil
}

// upload allocates a column and copies values to it.
func (j *job) upload(ctx context.Context, on *cuda.Lease, values []uint32) (*column, error) {
	col, err := j.alloc(ctx, on, len(values))
	if err != nil {
		return nil, err
	}
	return col, cuda.CopyToDevice(ctx, col, on.ID(), values)
}

// allocAll allocates columns of the given lengths.
func (j *job) allocAll(ctx context.Context, on *cuda.Lease, lengths ...int) ([]*column, error) {
	cols := make([]*column, 0, len(lengths))
	for _, n := range lengths {
		col, err := j.alloc(ctx, on, n)
		if err != nil {
			return nil, err
		}
		cols = append(cols, col)
	}
	return cols, nil
}

// launch enqueues a kernel that reads and writes the columns. It does not
// begin once the request's time is over.
func (j *job) launch(ctx context.Context, on *cuda.Lease, k *cuda.Kernel, grid cuda.Grid, reads, writes []*column, args ...driver.Arg) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	j.uses = j.uses[:0]
	for _, col := range reads {
		j.uses = append(j.uses, col.Use(core.Read))
	}
	for _, col := range writes {
		j.uses = append(j.uses, col.Use(core.Write))
	}
	return k.Launch(ctx, j.engine.rt.Runtime, on, grid, j.uses, args...)
}

// wait waits until the stream has done what was enqueued, or ctx ends.
func (j *job) wait(ctx context.Context, on *cuda.Lease) error {
	return j.engine.rt.Streams().Synchronize(ctx, on.ID())
}
