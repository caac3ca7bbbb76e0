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
	program  Program
	gate     *gate
	streams  *cuda.StreamPool
	resource resource
	// front is where blocks are allocated and freed: the backend, or entry over it, which enters the
	// quick path. beforeEntry is what that had counted when the set-up had ended.
	front       core.Resource
	entry       *proof.Entry
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

// resource is a resource of the fence engine.
type resource interface {
	core.Resource
	TrimPool(keep uint64) error
	Close(context.Context) error
}

// openLaunch is a launch of the set-up that a goroutine may end.
type openLaunch struct {
	ticket core.Ticket
	call   Call
	op     int16
	ended  bool
}

// newExecution makes a runtime with the streams that the program names.
func newExecution(p Program) (*execution, error) {
	x := &execution{program: p, gate: newGate()}
	var err error
	if x.streams, err = cuda.NewStreamPool(x.gate, cuda.StreamPoolConfig{}); err != nil {
		return nil, err
	}
	if x.resource, err = x.newResource(); err != nil {
		return nil, err
	}
	x.enter()
	for s := range uint8(Adopted + 1) {
		l, err := x.lease(s)
		if err != nil {
			return nil, err
		}
		x.leases = append(x.leases, l)
	}
	return x, nil
}

func (x *execution) newResource() (resource, error) {
	if !x.program.pooled() {
		return cuda.NewAsyncResource(x.gate, x.streams, cuda.AsyncConfig{ReapInterval: -1})
	}
	x.gate.Hosted = true
	interleave.Watch(x.gate)
	return cuda.NewPoolResource(x.gate, x.streams, cuda.PoolConfig{Limit: proof.PoolPages * device.PageBytes, ReapInterval: -1})
}

// enter puts the layer over the backend that enters the quick path, if the program asks for that.
func (x *execution) enter() {
	x.front = x.resource
	if x.program.Entered {
		x.entry = proof.Enter(x.resource)
		x.front = x.entry
	}
}

func (x *execution) lease(s uint8) (*cuda.Lease, error) {
	if s != Adopted {
		return x.streams.Acquire(context.Background(), "check")
	}
	if !x.program.has(func(c Call) bool { return c.Stream == Adopted }) {
		return nil, nil //nolint:nilnil // an unused stream is made for nobody
	}
	handle, err := x.gate.StreamCreate()
	if err != nil {
		return nil, err
	}
	return x.streams.Adopt(handle, "check")
}

func (x *execution) handle(s uint8) uint8 { return uint8(x.leases[s].Handle()) }

// prepare makes the calls of the set-up and returns the goroutines.
func (x *execution) prepare() (bodies []func()) {
	op := int16(0)
	for _, c := range x.program.Setup {
		x.do(c, op)
		op++
	}
	x.before, x.gate.reused, x.refusals = x.resource.Stats().OwnPool, proof.Moves{}, 0
	if x.entry != nil {
		x.beforeEntry = x.entry.Quickly()
	}
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

func (x *execution) do(c Call, op int16) {
	if err := x.call(c, op); err != nil && x.fault == nil {
		x.fault = fmt.Errorf("operation %d, %v: %w", op, c, err)
	}
	x.gate.end()
}

// call makes one call. An error is one that the call must not end with.
func (x *execution) call(c Call, op int16) (err error) {
	ctx := context.Background()
	x.gate.begin(underWay{op: op, block: c.Which, aborted: x.comesToNothing(c), quick: c.Quick || c.Kind == Reap || c.Kind == Sync || c.Kind == Trim})
	switch c.Kind {
	case Alloc:
		return x.alloc(ctx, c)
	case Free:
		if x.blocks[c.Which].ID.Generation == 0 {
			return nil // its allocation was refused
		}
		if _, err = x.front.Deallocate(ctx, x.blocks[c.Which].ID); err == nil {
			x.live &^= 1 << c.Which
		}
	case Launch, Abort, Open:
		return x.launch(ctx, c, op)
	case Finish, Cancel:
		return x.endOpen(ctx, &x.open[c.Which], c.Kind)
	case Record:
		uses := program.Set(1 << c.Which)
		end := x.node(oracle.End, c, op, uses)
		x.gate.put(end.Stream, x.node(oracle.Begin, c, op, uses), x.node(oracle.Work, c, op, uses), end)
		x.gate.own().finishing = &end
		err = x.resource.RecordUse(ctx, x.blocks[c.Which].ID, x.leases[c.Stream].ID())
	case Reap, Peek:
		return x.resource.ReapPending(ctx)
	case Trim:
		return x.resource.TrimPool(0)
	case Sync:
		err = x.streams.Synchronize(ctx, x.leases[c.Stream].ID())
	case Release:
		handle := x.handle(c.Stream)
		if err = x.leases[c.Stream].Release(); err == nil {
			x.gate.givenUp |= 1 << handle
		}
	}
	return x.unlessDue(err, c)
}

func (x *execution) alloc(ctx context.Context, c Call) error {
	b, err := x.front.Allocate(ctx, core.Request{Bytes: device.Unit * uint64(max(1, c.Units)), Stream: x.leases[c.Stream].ID()})
	if err != nil {
		return x.unlessDue(err, c)
	}
	x.blocks[c.Which] = b
	x.live |= 1 << c.Which
	return nil
}

func (x *execution) node(kind oracle.Kind, c Call, op int16, writes program.Set) oracle.Node {
	return oracle.Node{Kind: kind, Stream: x.handle(c.Stream), Op: op, Aborted: x.comesToNothing(c), Unfenced: c.Kind == Record,
		Reads: oracle.Set(c.Reads), Writes: oracle.Set(writes)}
}

// comesToNothing reports whether c is a launch that is aborted, by itself or
// later: the next to be opened.
func (x *execution) comesToNothing(c Call) bool {
	return c.Kind == Abort || c.Kind == Open && x.program.has(func(o Call) bool { return o.Kind == Cancel && int(o.Which) == len(x.open) })
}

// launch prepares a launch, enqueues its work, and ends it. One that is
// refused is left out.
func (x *execution) launch(ctx context.Context, c Call, op int16) error {
	var uses []core.Use
	for b := range c.uses().All() {
		access := core.Read
		if c.Writes.Has(b) {
			access = core.Write
		}
		if x.blocks[b].ID.Generation == 0 {
			return nil // its allocation was refused
		}
		uses = append(uses, core.Use{Block: x.blocks[b].ID, Access: access})
	}
	ticket, err := x.resource.PrepareUse(ctx, core.UseRequest{Stream: x.leases[c.Stream].ID(), Uses: uses})
	if err != nil {
		return x.unlessDue(err, c)
	}
	x.gate.end()
	begin, work := x.node(oracle.Begin, c, op, c.Writes), x.node(oracle.Work, c, op, c.Writes)
	if begin.Aborted {
		x.gate.put(begin.Stream, begin)
	} else {
		x.gate.put(begin.Stream, begin, work)
	}
	l := openLaunch{ticket: ticket, call: c, op: op}
	if c.Kind == Open {
		x.open = append(x.open, l)
		return nil
	}
	return x.endOpen(ctx, &l, map[Kind]Kind{Launch: Finish, Abort: Cancel}[c.Kind])
}

// endOpen finishes or aborts a launch. What it frees then is its own doing.
func (x *execution) endOpen(ctx context.Context, l *openLaunch, kind Kind) error {
	if l.ended {
		return nil
	}
	l.ended = true
	x.gate.begin(underWay{op: l.op})
	if kind == Cancel {
		return x.resource.AbortUse(ctx, l.ticket)
	}
	end := x.node(oracle.End, l.call, l.op, l.call.Writes)
	x.gate.put(end.Stream, end)
	x.gate.own().finishing = &end
	return x.resource.FinishUse(ctx, l.ticket)
}

// unlessDue is nil for an error that the program gives cause for.
func (x *execution) unlessDue(err error, c Call) error {
	p := x.program
	switch {
	case c.Units > 0 && errors.Is(err, core.ErrOutOfMemory):
		x.refused++
		x.refusals++
		return nil
	case errors.Is(err, core.ErrUseAfterFree):
		if p.has(func(o Call) bool { return o.Kind == Free && o.uses()&c.uses() != 0 }) {
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
func (p Program) givesCause(c Call) bool {
	return p.has(func(o Call) bool {
		if c.Stream == Adopted && o.Stream == Adopted {
			if o.Kind == Release || c.Kind == Release && (o.isLaunch() || o.Kind == Record) {
				return true
			}
		}
		return o.isLaunch() && c.isLaunch() && o.Stream != c.Stream && o.operation().Conflicts(c.operation())
	})
}
