package overlap

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/dev/proof"
	"github.com/fencepost-gpu/fencepost/dev/proof/device"
	"github.com/fencepost-gpu/fencepost/dev/proof/interleave"
	"github.com/fencepost-gpu/fencepost/dev/proof/oracle"
	"github.com/fencepost-gpu/fencepost/dev/proof/program"
)

// execution is one execution of a program: a runtime of its own.
type execution struct {
	*proof.Runtime
	program Program
	gate    *gate
	// beforeEntry is what the entry of the quick path had counted when the set-up had ended.
	beforeEntry proof.Quickly
	// before is what the pool had done when the set-up had ended, refusals the allocations that it
	// refused later.
	before   core.OwnPoolStats
	refusals uint64
	leases   []*cuda.Lease
	blocks   [program.MaxBlocks]core.Block
	live     program.Set
	open     []openLaunch
	// refused counts the calls that were, with cause.
	refused uint64
	// fault is what the production code did and must not.
	fault error
}

// openLaunch is a launch of the set-up that a goroutine may end.
type openLaunch struct {
	ticket core.Ticket
	call   program.Op
	op     int16
	ended  bool
}

// newExecution makes a runtime with the streams that the program names.
func newExecution(p Program) (*execution, error) {
	x := &execution{program: p, gate: newGate()}
	var err error
	if x.Runtime, err = proof.NewRuntime(x.gate, x.over(), cuda.StreamPoolConfig{}); err != nil {
		return nil, err
	}
	for s := range uint8(Adopted + 1) {
		l, err := x.lease(s)
		if err != nil {
			return nil, err
		}
		x.leases = append(x.leases, l)
	}
	return x, nil
}

// over is where the blocks come from. Of the runtime's own pool the gate is told.
func (x *execution) over() proof.Memory {
	if !x.program.pooled() {
		return proof.DriverPool
	}
	x.gate.Hosted = true
	interleave.Watch(x.gate)
	if x.program.Entered {
		return proof.OwnPoolQuickly
	}
	return proof.OwnPool
}

func (x *execution) lease(s uint8) (*cuda.Lease, error) {
	if s != Adopted {
		return x.Streams.Acquire(context.Background(), "check")
	}
	if !x.program.has(func(c program.Op) bool { return c.Stream == Adopted }) {
		return nil, nil //nolint:nilnil // an unused stream is made for nobody
	}
	handle, err := x.gate.StreamCreate()
	if err != nil {
		return nil, err
	}
	return x.Streams.Adopt(handle, "check")
}

func (x *execution) handle(s uint8) uint8 { return uint8(x.leases[s].Handle()) }

// prepare makes the calls of the set-up and returns the goroutines.
func (x *execution) prepare() (bodies []func()) {
	op := int16(0)
	for _, c := range x.program.Setup {
		x.do(c, op)
		op++
	}
	x.before, x.gate.reused, x.refusals = x.Backend.Stats().OwnPool, proof.Moves{}, 0
	x.beforeEntry = x.Quickly()
	for _, calls := range x.program.Threads {
		first := op
		bodies = append(bodies, func() {
			for i, c := range calls {
				x.do(c, first+int16(i))
			}
		})
		op += int16(len(calls))
	}
	return bodies
}

func (x *execution) do(c program.Op, op int16) {
	if err := x.call(c, op); err != nil && x.fault == nil {
		x.fault = fmt.Errorf("operation %d, %v: %w", op, c, err)
	}
	x.gate.end()
}

// call makes one call. An error is one that the call must not end with.
func (x *execution) call(c program.Op, op int16) (err error) {
	ctx := context.Background()
	x.gate.begin(underWay{op: op, block: c.Block, aborted: x.comesToNothing(c), quick: c.AtOnce || c.Kind == program.ReapDone || c.Kind == program.Sync || c.Kind == program.Trim})
	switch c.Kind {
	case program.Alloc:
		return x.alloc(ctx, c)
	case program.Free:
		if x.blocks[c.Block].ID.Generation == 0 {
			return nil // its allocation was refused
		}
		if _, err = x.Front.Deallocate(ctx, x.blocks[c.Block].ID); err == nil {
			x.live &^= 1 << c.Block
		}
	case program.Launch, program.Abort, program.Open:
		return x.launch(ctx, c, op)
	case program.Finish, program.Cancel:
		return x.endOpen(ctx, &x.open[c.Block], c.Kind)
	case program.Record:
		end := x.node(oracle.End, c, op)
		x.gate.put(end.Stream, x.node(oracle.Begin, c, op), x.node(oracle.Work, c, op), end)
		x.gate.own().finishing = &end
		err = x.Backend.RecordUse(ctx, x.blocks[c.Block].ID, x.leases[c.Stream].ID())
	case program.ReapDone, program.Peek:
		return x.Backend.ReapPending(ctx)
	case program.Trim:
		return x.Backend.TrimPool(0)
	case program.Sync:
		err = x.Streams.Synchronize(ctx, x.leases[c.Stream].ID())
	case program.Release:
		handle := x.handle(c.Stream)
		if err = x.leases[c.Stream].Release(); err == nil {
			x.gate.givenUp |= 1 << handle
		}
	}
	return x.unlessDue(err, c)
}

func (x *execution) alloc(ctx context.Context, c program.Op) error {
	b, err := x.Front.Allocate(ctx, core.Request{Bytes: device.Unit * uint64(max(1, c.Units)), Stream: x.leases[c.Stream].ID()})
	if err != nil {
		return x.unlessDue(err, c)
	}
	x.blocks[c.Block] = b
	x.live |= 1 << c.Block
	return nil
}

func (x *execution) node(kind oracle.Kind, c program.Op, op int16) oracle.Node {
	n := proof.Node(kind, c, op, x.handle(c.Stream))
	n.Aborted = x.comesToNothing(c)
	return n
}

// comesToNothing reports whether c is a launch that is aborted, by itself or
// later: the next to be opened.
func (x *execution) comesToNothing(c program.Op) bool {
	return c.Kind == program.Abort || c.Kind == program.Open && x.program.has(func(o program.Op) bool { return o.Kind == program.Cancel && int(o.Block) == len(x.open) })
}

// launch prepares a launch, enqueues its work, and ends it. One that is
// refused is left out.
func (x *execution) launch(ctx context.Context, c program.Op, op int16) error {
	for b := range c.Uses().All() {
		if x.blocks[b].ID.Generation == 0 {
			return nil // its allocation was refused
		}
	}
	ticket, err := x.Backend.PrepareUse(ctx, core.UseRequest{Stream: x.leases[c.Stream].ID(), Uses: proof.AppendUses(nil, c, x.blocks[:])})
	if err != nil {
		return x.unlessDue(err, c)
	}
	x.gate.end()
	begin, work := x.node(oracle.Begin, c, op), x.node(oracle.Work, c, op)
	if begin.Aborted {
		x.gate.put(begin.Stream, begin)
	} else {
		x.gate.put(begin.Stream, begin, work)
	}
	l := openLaunch{ticket: ticket, call: c, op: op}
	if c.Kind == program.Open {
		x.open = append(x.open, l)
		return nil
	}
	return x.endOpen(ctx, &l, map[program.Kind]program.Kind{program.Launch: program.Finish, program.Abort: program.Cancel}[c.Kind])
}

// endOpen finishes or aborts a launch. What it frees then is its own doing.
func (x *execution) endOpen(ctx context.Context, l *openLaunch, kind program.Kind) error {
	if l.ended {
		return nil
	}
	l.ended = true
	x.gate.begin(underWay{op: l.op})
	if kind == program.Cancel {
		return x.Backend.AbortUse(ctx, l.ticket)
	}
	end := x.node(oracle.End, l.call, l.op)
	x.gate.put(end.Stream, end)
	x.gate.own().finishing = &end
	return x.Backend.FinishUse(ctx, l.ticket)
}

// unlessDue is nil for an error that the program gives cause for.
func (x *execution) unlessDue(err error, c program.Op) error {
	p := x.program
	switch {
	case c.Units > 0 && errors.Is(err, core.ErrOutOfMemory):
		x.refused++
		x.refusals++
		return nil
	case errors.Is(err, core.ErrUseAfterFree):
		if p.has(func(o program.Op) bool { return o.Kind == program.Free && o.Touches()&c.Touches() != 0 }) {
			x.refused++
			return nil
		}
	case errors.Is(err, core.ErrStreamMisuse):
		if p.givesCause(c) {
			x.refused++
			return nil
		}
	}
	return err
}

// givesCause reports whether the program has a call for which c may be refused
// as misuse: a launch that conflicts on another stream, or for the adopted
// stream its release, and for that a launch there.
func (p Program) givesCause(c program.Op) bool {
	return p.has(func(o program.Op) bool {
		if c.Stream == Adopted && o.Stream == Adopted {
			if o.Kind == program.Release || c.Kind == program.Release && (o.IsLaunch() || o.Kind == program.Record) {
				return true
			}
		}
		return o.IsLaunch() && c.IsLaunch() && o.Stream != c.Stream && o.Conflicts(c)
	})
}
