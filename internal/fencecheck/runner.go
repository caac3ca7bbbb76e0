package fencecheck

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/internal/fencecheck/device"
	"github.com/fencepost-gpu/fencepost/internal/fencecheck/oracle"
	"github.com/fencepost-gpu/fencepost/internal/fencecheck/program"
)

var ctx = context.Background()

const blockBytes = 256

// Runner runs programs on the production code, over a device that writes down
// what arrives there. It is not safe for concurrent use.
type Runner struct {
	device  *device.Device
	streams *cuda.StreamPool
	backend *cuda.AsyncResource
	// resource is the backend, or the outermost layer around it.
	resource core.Resource
	leases   []*cuda.Lease
	handles  []uint8

	blocks  []core.Block
	live    []bool
	tickets []core.Ticket
	uses    []core.Use
}

// NewRunner returns a runner with so many streams, over the backend with some
// layers around it. It must be closed.
func NewRunner(streams int, layers ...core.Layer) (*Runner, error) {
	r := &Runner{device: device.New()}
	var err error
	if r.streams, err = cuda.NewStreamPool(r.device, cuda.StreamPoolConfig{}); err != nil {
		return nil, err
	}
	if r.backend, err = cuda.NewAsyncResource(r.device, r.streams, cuda.AsyncConfig{ReapInterval: -1}); err != nil {
		return nil, err
	}
	if r.resource, err = core.Chain(r.backend, layers...); err != nil {
		return nil, err
	}
	for range streams {
		l, err := r.streams.Acquire(ctx, "check")
		if err != nil {
			return nil, err
		}
		r.leases, r.handles = append(r.leases, l), append(r.handles, uint8(l.Handle()))
	}
	return r, nil
}

// Close ends the runner.
func (r *Runner) Close() error {
	r.device.Finish()
	for _, l := range r.leases {
		if err := l.Release(); err != nil {
			return err
		}
	}
	return errors.Join(r.backend.Close(ctx), r.streams.Close(ctx))
}

// Run takes the steps of a program, frees what it left, and judges what
// arrived at the device. An error says that the production code failed
// where it must not, or did not refuse what it must.
func (r *Runner) Run(p program.Program, steps Schedule) (oracle.Verdict, error) {
	r.begin(p)
	for _, step := range steps {
		if err := r.take(p, step); err != nil {
			return oracle.Verdict{}, fmt.Errorf("step %v: %w", Schedule{step}, err)
		}
	}
	for b := range r.blocks {
		if r.live[b] {
			if err := r.free(uint8(b), len(p)+b); err != nil {
				return oracle.Verdict{}, fmt.Errorf("the last free of block %d: %w", b, err)
			}
		}
	}
	v := r.device.History.Judge()
	return v, r.settle()
}

// Drop makes the device forget the k-th wait of every run, from 1; 0 ends that.
func (r *Runner) Drop(k int) { r.device.Drop = k }

// History is what arrived at the device in the last run. It is empty after
// one that went well.
func (r *Runner) History() *oracle.History { return r.device.History }

func (r *Runner) begin(p program.Program) {
	r.device.Reset()
	r.blocks, r.live = r.blocks[:0], r.live[:0]
	for len(r.tickets) < len(p) {
		r.tickets = append(r.tickets, core.Ticket{})
	}
}

// settle lets the device execute all and looks whether everything came back.
func (r *Runner) settle() error {
	r.device.Finish()
	if err := r.resource.ReapPending(ctx); err != nil {
		return err
	}
	if s := r.resource.Stats(); s.Outstanding().Blocks != 0 || s.OpenIntents != 0 || s.Poisoned != 0 || s.Failures != 0 || s.Underflows != 0 {
		return fmt.Errorf("the books at the end: %+v", s)
	}
	return nil
}

func (r *Runner) take(p program.Program, step Step) error {
	o := p[step.Op]
	d := r.device
	d.Op, d.Aborted = int16(step.Op), o.Kind == program.Abort
	switch {
	case o.Kind == program.Alloc:
		return r.alloc(o)
	case o.Kind == program.Free:
		return r.free(o.Block, int(step.Op))
	case o.Kind == program.Sync:
		d.Execute(r.handles[o.Stream])
		return r.streams.Synchronize(ctx, r.leases[o.Stream].ID())
	case step.Phase == Enqueue:
		r.put(oracle.Work, o, step)
		return nil
	case o.Kind == program.Record:
		return r.record(o, step)
	case step.Phase == End:
		return r.end(o, step)
	default:
		return r.prepare(o, step)
	}
}

func (r *Runner) alloc(o program.Op) error {
	r.device.Block = o.Block
	b, err := r.resource.Allocate(ctx, core.Request{Bytes: blockBytes, Stream: r.leases[o.Stream].ID()})
	r.blocks, r.live = append(r.blocks, b), append(r.live, true)
	return err
}

func (r *Runner) free(block uint8, op int) error {
	r.device.Op, r.device.Aborted = int16(op), false
	r.live[block] = false
	_, err := r.resource.Deallocate(ctx, r.blocks[block].ID)
	return err
}

// put puts the host's side of a launch on its stream.
func (r *Runner) put(kind oracle.Kind, o program.Op, step Step) {
	r.device.Put(oracle.Node{Kind: kind, Stream: r.handles[o.Stream], Op: int16(step.Op), Aborted: o.Kind == program.Abort, Unfenced: o.Kind == program.Record,
		Reads: oracle.Set(o.Uses() &^ o.Changes()), Writes: oracle.Set(o.Changes())})
}

func (r *Runner) prepare(o program.Op, step Step) error {
	r.uses = r.uses[:0]
	for b := range o.Uses().All() {
		access := core.Read
		if o.Writes.Has(b) {
			access = core.Write
		}
		r.uses = append(r.uses, core.Use{Block: r.blocks[b].ID, Access: access})
	}
	t, err := r.resource.PrepareUse(ctx, core.UseRequest{Stream: r.leases[o.Stream].ID(), Uses: r.uses})
	if step.Phase == Refused {
		if !errors.Is(err, core.ErrStreamMisuse) {
			return fmt.Errorf("a launch that conflicts with an open one was answered with %w", err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	r.tickets[step.Op] = t
	r.put(oracle.Begin, o, step)
	return nil
}

func (r *Runner) end(o program.Op, step Step) error {
	if o.Kind == program.Abort {
		return r.resource.AbortUse(ctx, r.tickets[step.Op])
	}
	r.put(oracle.End, o, step)
	return r.resource.FinishUse(ctx, r.tickets[step.Op])
}

// record enqueues a use behind the runtime's back, or tells of it afterwards.
func (r *Runner) record(o program.Op, step Step) error {
	if step.Phase == Begin {
		r.put(oracle.Begin, o, step)
		r.put(oracle.Work, o, step)
		return nil
	}
	r.put(oracle.End, o, step)
	return r.resource.RecordUse(ctx, r.blocks[o.Block].ID, r.leases[o.Stream].ID())
}
