package proof

import (
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/dev/proof/device"
	"github.com/fencepost-gpu/fencepost/dev/proof/oracle"
	"github.com/fencepost-gpu/fencepost/dev/proof/program"
)

// take takes one step of a program.
func (r *Runner) take(p program.Program, step Step) error {
	if err := r.step(p, step); err != nil || r.pool == nil {
		return err
	}
	return r.pool.endStep()
}

// step makes the calls of a step.
func (r *Runner) step(p program.Program, step Step) error {
	o := p[step.Op]
	d := r.device
	d.Op, d.Aborted = int16(step.Op), o.Kind == program.Abort
	switch {
	case o.Kind == program.Alloc:
		return r.alloc(o, step.Op)
	case o.Kind == program.Free:
		return r.free(o.Block, int(step.Op))
	case o.Kind == program.Sync:
		d.Execute(r.handles[o.Stream])
		return r.Streams.Synchronize(ctx, r.leases[o.Stream].ID())
	case o.Kind == program.GiveUp:
		return r.giveUp(o.Stream)
	case o.Kind == program.Reap:
		d.Execute(r.handles[o.Stream])
		return r.resource.ReapPending(ctx)
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
	r.device.Block = o.Block
	if r.pool != nil {
		r.pool.allocating(o, r.handles[o.Stream])
	}
	b, err := r.resource.Allocate(ctx, core.Request{Bytes: device.Unit * uint64(max(1, o.Units)), Stream: r.leases[o.Stream].ID(), Isolated: r.config.Over == Isolated})
	if refused, err := r.pool.refuses(err, op, o.Units); refused {
		r.refused++
		return err
	}
	r.blocks, r.live = append(r.blocks, b), append(r.live, true)
	if err != nil {
		return err
	}
	switch {
	case r.config.Over == Isolated:
		r.device.Locate(b.ID.Ptr, b.Bytes)
	case r.pool != nil:
		return r.pool.allocated(&b, r.handles[o.Stream])
	}
	return nil
}

func (r *Runner) free(block uint8, op int) error {
	r.device.Op, r.device.Aborted = int16(op), false
	r.live[block] = false
	_, err := r.resource.Deallocate(ctx, r.blocks[block].ID)
	if err != nil || r.pool == nil {
		return err
	}
	r.pool.retired |= 1 << block
	return r.pool.endStep()
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
	r.device.Put(Node(kind, o, int16(step.Op), r.handles[o.Stream]))
}

// Node is a node of the host's side of a launch or a recorded use.
func Node(kind oracle.Kind, o program.Op, op int16, stream uint8) oracle.Node {
	return oracle.Node{Kind: kind, Stream: stream, Op: op, Aborted: o.Kind == program.Abort, Unfenced: o.IsRecord(),
		Reads: oracle.Set(o.Uses() &^ o.Changes()), Writes: oracle.Set(o.Changes())}
}

// AppendUses appends what a launch uses.
func AppendUses(uses []core.Use, o program.Op, blocks []core.Block) []core.Use {
	for b := range o.Uses().All() {
		access := core.Read
		if o.Writes.Has(b) {
			access = core.Write
		}
		uses = append(uses, core.Use{Block: blocks[b].ID, Access: access})
	}
	return uses
}

func (r *Runner) prepare(o program.Op, step Step) error {
	r.uses = AppendUses(r.uses[:0], o, r.blocks)
	t, err := r.resource.PrepareUse(ctx, core.UseRequest{Stream: r.leases[o.Stream].ID(), Uses: r.uses})
	if step.Phase == Refused {
		if !errors.Is(err, core.ErrStreamMisuse) {
			return fmt.Errorf("%w: a launch that conflicts with an open one: %w", ErrAnswer, orNil(err))
		}
		return nil
	}
	if err != nil {
		return err
	}
	r.tickets[step.Op] = t
	if r.pool != nil {
		r.pool.open[step.Op] = o
	}
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
