package proof

import (
	"slices"

	"github.com/fencepost-gpu/fencepost/dev/proof/oracle"
	"github.com/fencepost-gpu/fencepost/dev/proof/program"
)

// Planner takes the steps of programs on a plan of the oracle's, which says what each must lead to.
type Planner struct {
	*oracle.Plan
	// DeviceOrder: what the host has seen done orders nothing.
	DeviceOrder bool
	// Backstop is the stream on which blocks are freed whose own was given up.
	Backstop uint8
	home     [program.MaxBlocks]uint8 // by block, the stream of its allocation
	givenUp  uint64
	retired  program.Set // blocks that were freed while launches over them are open
	held     []heldFree
	outcome  Outcome
}

// heldFree is the free of a block that the host keeps until it has seen some nodes done.
type heldFree struct {
	block uint8
	op    int16
	until []int32
}

// Outcome is what a step must lead to, beside what it puts on the streams.
type Outcome struct {
	// Holder is the operation of the open launch for which the step must be refused, -1 for none.
	Holder int16
	// Needs are what the step must come after, and how it does.
	Needs []oracle.Need
	// Users are the operations of the open launches that a free has to wait for.
	Users []int16
	// Held are the operations that must be seen completed before a free goes on.
	Held []int16
}

// NewPlanner returns a planner of so many streams.
func NewPlanner(streams int) *Planner { return &Planner{Plan: oracle.NewPlan(streams)} }

// Reset makes the history empty.
func (p *Planner) Reset() {
	p.Plan.Reset()
	p.retired, p.givenUp, p.held = 0, 0, p.held[:0]
}

// Take takes one step of an operation. The outcome is valid until the next.
func (p *Planner) Take(o program.Op, s Step) *Outcome {
	p.outcome.Holder, p.outcome.Needs, p.outcome.Users = -1, p.outcome.Needs[:0], nil
	p.outcome.Held = nil
	op := int16(s.Op)
	switch o.Kind {
	case program.Alloc:
		p.home[o.Block] = o.Stream
		p.Alloc(oracle.Node{Stream: o.Stream, Op: op, Block: o.Block, Cells: 1 << o.Block})
	case program.Free:
		p.free(o.Block, op)
	case program.Sync:
		p.Decide(o.Stream)
		p.learn(o.Stream)
	case program.Reap:
		p.learn(o.Stream)
		p.freeHeld()
	case program.GiveUp:
		p.Last(oracle.Node{Stream: o.Stream, Op: op})
		p.givenUp |= 1 << o.Stream
	case program.Peek: // what was done before is learned already
		p.freeHeld()
	default:
		p.use(o, s, node(oracle.Work, o, s.Op, o.Stream))
	}
	return &p.outcome
}

func (p *Planner) use(o program.Op, s Step, n oracle.Node) {
	switch {
	case s.Phase == End && o.Kind == program.Abort:
		p.Abort(n.Op)
		p.unblock(o, n.Op)
	case s.Phase == End:
		if o.IsRecord() {
			p.Decide(o.Stream) // before the use is told of
		}
		p.End(n.Op)
		if isFaulty(o.Kind) {
			p.learn(o.Stream)
		}
		p.unblock(o, n.Op)
	case s.Phase == Enqueue:
		p.Add(n)
	case o.IsRecord():
		p.Use(n)
	default:
		if p.outcome.Holder = p.Conflict(n); p.outcome.Holder < 0 {
			p.outcome.Needs = append(p.outcome.Needs, p.Prepare(n)...)
		}
	}
}

// learn notes that the host has seen done what is on a stream.
func (p *Planner) learn(stream uint8) {
	if !p.DeviceOrder {
		p.Learn(p.History.Last(stream))
	}
}

// unblock frees the blocks whose free only the end of a launch was missing for.
func (p *Planner) unblock(o program.Op, op int16) {
	for b := range (o.Uses() & p.retired).All() {
		if len(p.Users(b)) == 0 {
			p.retired &^= 1 << b
			p.free(b, op)
		}
	}
}

func (p *Planner) free(block uint8, op int16) {
	if users := p.Users(block); len(users) > 0 {
		p.retired |= 1 << block
		p.outcome.Users = users
		return
	}
	stream := p.home[block]
	if p.givenUp>>stream&1 != 0 {
		stream = p.Backstop
	}
	needs, freed := p.Free(oracle.Node{Stream: stream, Op: op, Block: block, Cells: 1 << block}, p.DeviceOrder || stream != p.home[block])
	if freed {
		p.outcome.Needs = append(p.outcome.Needs, needs...)
		return
	}
	h := heldFree{block: block, op: op}
	for _, d := range needs {
		if d.By == oracle.ByWait {
			h.until = append(h.until, d.First)
			p.outcome.Held = append(p.outcome.Held, p.Nodes()[d.First].Op)
		}
	}
	p.held = append(p.held, h)
}

// freeHeld goes on with the frees that waited for what the host has seen done.
func (p *Planner) freeHeld() {
	held := p.held
	p.held = nil
	for _, h := range held {
		if slices.ContainsFunc(h.until, func(node int32) bool { return !p.IsKnown(node) }) {
			p.held = append(p.held, h)
		} else {
			p.free(h.block, h.op)
		}
	}
}
