package proof

import (
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/dev/proof/device"
	"github.com/fencepost-gpu/fencepost/dev/proof/oracle"
	"github.com/fencepost-gpu/fencepost/dev/proof/program"
)

// Take takes one step of an operation.
func (r *Runner) Take(o program.Op, step Step) error {
	r.gate.Begin(device.Call{
		Op: int16(step.Op), Block: o.Block, Aborted: o.Kind == program.Abort && step.Phase != End,
		Done: o.AtOnce || o.Kind == program.Sync || o.Kind == program.ReapDone || o.Kind == program.Trim,
	})
	err := r.call(o, step)
	r.gate.End()
	if err != nil || r.pool == nil {
		return err
	}
	return r.pool.endStep()
}

// call makes the calls of a step.
func (r *Runner) call(o program.Op, step Step) error {
	switch o.Kind {
	case program.Alloc:
		return r.alloc(o, step.Op)
	case program.Free:
		return r.free(o.Block)
	case program.Sync:
		r.gate.Execute(r.handles[o.Stream])
		return r.Streams.Synchronize(ctx, r.leases[o.Stream].ID())
	case program.GiveUp:
		return r.giveUp(o.Stream)
	case program.Release:
		err := r.leases[o.Stream].Release()
		if err == nil {
			r.released |= 1 << o.Stream
		}
		return err
	case program.Trim:
		return r.Backend.TrimPool(0)
	case program.Reap:
		r.gate.Execute(r.handles[o.Stream])
		return r.resource.ReapPending(ctx)
	case program.ReapDone, program.Peek:
		return r.resource.ReapPending(ctx)
	}
	switch {
	case step.Phase == Enqueue:
		r.put(oracle.Work, o, step)
		return nil
	case o.IsRecord():
		return r.record(o, step)
	case step.Phase == End:
		return r.end(o, step)
	default:
		return r.prepare(o, step)
	}
}

func (r *Runner) alloc(o program.Op, op uint8) error {
	if r.pool != nil {
		r.pool.allocating(o, r.handles[o.Stream])
	}
	b, err := r.resource.Allocate(ctx, core.Request{Bytes: device.Unit * uint64(max(1, o.Units)), Stream: r.leases[o.Stream].ID(), Isolated: r.config.Over == Isolated})
	if refused, err := r.pool.refuses(err, op, o.Units); refused {
		r.Excuse(core.ErrOutOfMemory)
		return err
	}
	if err != nil {
		return err
	}
	r.blocks[o.Block], r.made = b, max(r.made, o.Block+1)
	r.live |= 1 << o.Block
	switch {
	case r.config.Over == Isolated:
		r.device.Locate(b.ID.Ptr, b.Bytes)
	case r.pool != nil:
		return r.pool.allocated(&b, r.handles[o.Stream])
	}
	return nil
}

// Excuse says that a call was refused for a reason.
func (r *Runner) Excuse(err error) {
	r.refused++
	if errors.Is(err, core.ErrOutOfMemory) {
		r.outOfMemory++
	}
}

func (r *Runner) free(block uint8) error {
	_, err := r.resource.Deallocate(ctx, r.blocks[block].ID)
	if err != nil {
		return err
	}
	r.live &^= 1 << block
	if r.pool != nil {
		r.pool.retired |= 1 << block
	}
	return nil
}

// giveUp gives a stream up and adopts another.
func (r *Runner) giveUp(stream uint8) error {
	r.gate.Put(oracle.Node{Kind: oracle.Last, Stream: r.handles[stream], Op: r.device.Op})
	if err := r.leases[stream].Release(); err != nil {
		return err
	}
	if r.pool != nil {
		r.pool.ended[r.handles[stream]] = true
	}
	return r.lease(int(stream))
}

// orNil is err in words, for who wants one.
func orNil(err error) error {
	if err == nil {
		return errors.New("no error")
	}
	return err
}

// put puts the host's side of a launch on its stream.
func (r *Runner) put(kind oracle.Kind, o program.Op, step Step) {
	r.gate.Put(node(kind, o, step.Op, r.handles[o.Stream]))
}

// node is a node of the host's side of a launch or a recorded use.
func node(kind oracle.Kind, o program.Op, op, stream uint8) oracle.Node {
	return oracle.Node{Kind: kind, Stream: stream, Op: int16(op), Aborted: o.Kind == program.Abort, Unfenced: o.IsRecord(),
		Reads: oracle.Set(o.Uses() &^ o.Changes()), Writes: oracle.Set(o.Changes())}
}

// access is what a launch does with one of its blocks.
func access(o program.Op, block uint8) core.Access {
	if o.Writes.Has(block) {
		return core.Write
	}
	return core.Read
}

func (r *Runner) prepare(o program.Op, step Step) error {
	uses := make([]core.Use, 0, o.Uses().Len())
	for b := range o.Uses().All() {
		uses = append(uses, core.Use{Block: r.blocks[b].ID, Access: access(o, b)})
	}
	req := core.UseRequest{Stream: r.leases[o.Stream].ID(), Uses: uses}
	if r.config.Names != nil {
		req.Launch = r.config.Names[step.Op]
	}
	t, err := r.resource.PrepareUse(ctx, req)
	if step.Phase == Refused {
		if !errors.Is(err, core.ErrStreamMisuse) {
			return fmt.Errorf("%w: a launch that conflicts with an open one: %w", ErrAnswer, orNil(err))
		}
		return nil
	}
	if err != nil {
		return err
	}
	for len(r.tickets) <= int(step.Op) {
		r.tickets = append(r.tickets, core.Ticket{})
	}
	r.tickets[step.Op] = t
	if r.pool != nil {
		r.pool.open[step.Op] = o
	}
	r.gate.End()
	r.put(oracle.Begin, o, step)
	return nil
}

func (r *Runner) end(o program.Op, step Step) error {
	if r.pool != nil {
		delete(r.pool.open, step.Op)
	}
	if o.Kind == program.Abort {
		return r.resource.AbortUse(ctx, r.tickets[step.Op])
	}
	r.put(oracle.End, o, step)
	return r.tell(o, func() error { return r.resource.FinishUse(ctx, r.tickets[step.Op]) })
}

// tell tells the runtime that work was enqueued. If the event behind it cannot
// be recorded the runtime must say so, and order the work by other means.
func (r *Runner) tell(o program.Op, of func() error) error {
	if !isFaulty(o.Kind) {
		return of()
	}
	r.device.Refuse = true
	if err := of(); !errors.Is(err, core.ErrDriver) {
		return fmt.Errorf("%w: work behind which no event could be recorded: %w", ErrAnswer, orNil(err))
	}
	r.refused++
	return nil
}

// record enqueues a use behind the runtime's back, or tells of it afterwards.
func (r *Runner) record(o program.Op, step Step) error {
	if step.Phase == Begin {
		r.put(oracle.Begin, o, step)
		r.put(oracle.Work, o, step)
		return nil
	}
	r.put(oracle.End, o, step)
	return r.tell(o, func() error {
		return r.resource.RecordUse(ctx, r.blocks[o.Block].ID, r.leases[o.Stream].ID())
	})
}
