package overlap

import (
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/dev/proof"
	"github.com/fencepost-gpu/fencepost/dev/proof/interleave"
	"github.com/fencepost-gpu/fencepost/dev/proof/program"
)

// execution is one execution of a program, on a runner of its own.
type execution struct {
	*proof.Runner
	program Program
	gate    *gate
	// next numbers the operations.
	next uint8
	open []opened
	// refused counts the calls that were, with cause.
	refused uint64
	// fault is what the production code did and must not.
	fault error
}

// opened is a launch of the set-up that a goroutine may end: a launch, or an aborted one.
type opened struct {
	launch program.Op
	op     uint8
	ended  bool
}

// newExecution makes a runtime with the streams that the program names.
func newExecution(p Program) (*execution, error) {
	x := &execution{program: p, gate: newGate()}
	cfg := proof.Config{Streams: int(Adopted), Device: x.gate.Device, Gate: x.gate}
	if p.has(func(c program.Op) bool { return c.Stream == Adopted }) {
		cfg.Streams, cfg.Adopted = int(Adopted)+1, 1<<Adopted
	}
	if p.pooled() {
		cfg.Over = proof.OwnPool
		interleave.Watch(x.gate)
		if p.Entered {
			cfg.Over = proof.OwnPoolQuickly
		}
	}
	var err error
	x.Runner, err = proof.NewRunner(cfg)
	return x, err
}

// prepare makes the calls of the set-up and returns the goroutines.
func (x *execution) prepare() (bodies []func()) {
	x.doAll(x.program.Setup, 0)
	x.BeginMoves()
	op := uint8(len(x.program.Setup))
	for _, calls := range x.program.Threads {
		first := op
		bodies = append(bodies, func() { x.doAll(calls, first) })
		op += uint8(len(calls))
	}
	x.next = op
	return bodies
}

func (x *execution) doAll(calls program.Program, first uint8) {
	for i, c := range calls {
		x.do(c, first+uint8(i))
	}
}

// do makes one call, unless its blocks lack because their allocations were refused.
func (x *execution) do(c program.Op, op uint8) {
	for b := range c.Touches().All() {
		if x.Block(b).ID.Generation == 0 {
			return
		}
	}
	switch c.Kind {
	case program.Open:
		l := opened{launch: c, op: op}
		l.launch.Kind = program.Launch
		if x.program.has(func(o program.Op) bool { return o.Kind == program.Cancel && int(o.Block) == len(x.open) }) {
			l.launch.Kind = program.Abort
		}
		phases := proof.Phases(l.launch.Kind)
		if x.take(l.launch, op, phases[:len(phases)-1]...) {
			x.open = append(x.open, l)
		}
	case program.Finish, program.Cancel:
		if l := &x.open[c.Block]; !l.ended {
			l.ended = true
			x.take(l.launch, l.op, proof.End)
		}
	default:
		if x.take(c, op, proof.Phases(c.Kind)...) && c.Kind == program.Release {
			x.gate.givenUp |= 1 << x.Handle(c.Stream)
		}
	}
}

// take takes steps of a call until one is refused, which is a fault if there is no cause.
func (x *execution) take(c program.Op, op uint8, phases ...proof.Phase) bool {
	for _, phase := range phases {
		err := x.Take(c, proof.Step{Op: op, Phase: phase})
		if err != nil && x.isDue(err, c) {
			x.refused++
			x.Excuse(err)
			return false
		}
		if err != nil {
			if x.fault == nil {
				x.fault = fmt.Errorf("operation %d, %v: %w", op, c, err)
			}
			return false
		}
	}
	return true
}

// isDue reports whether the program gives cause for an error.
func (x *execution) isDue(err error, c program.Op) bool {
	switch {
	case errors.Is(err, core.ErrOutOfMemory):
		return c.Units > 0
	case errors.Is(err, core.ErrUseAfterFree):
		return x.program.has(func(o program.Op) bool { return o.Kind == program.Free && o.Touches()&c.Touches() != 0 })
	case errors.Is(err, core.ErrStreamMisuse):
		return x.program.givesCause(c)
	}
	return false
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

// finish ends what the goroutines left, judges what arrived, and closes the
// runtime.
func (x *execution) finish() error {
	for i := range x.open {
		x.do(program.Op{Kind: program.Finish, Block: uint8(i)}, x.next)
	}
	err := x.FreeAll(int(x.next))
	v := x.gate.History.Judge()
	if x.gate.givenUp != 0 || x.program.pooled() { // see the package comment
		v.Redundant, v.Extra = 0, 0
	}
	history := x.gate.History
	text := ""
	if x.fault != nil || err != nil || v.Bad() {
		text = history.String()
	}
	if err = errors.Join(x.fault, err, x.Settle()); err != nil && text == "" {
		text = history.String()
	}
	x.gate.closing = true
	interleave.End()
	if err = errors.Join(err, x.Close(), x.gate.fault); err == nil && !v.Bad() {
		return nil
	}
	return &proof.Failure{Verdict: v, Cause: err, History: text}
}
