package overlap

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost-gpu/fencepost/dev/proof"
	"github.com/fencepost-gpu/fencepost/dev/proof/interleave"
	"github.com/fencepost-gpu/fencepost/dev/proof/oracle"
	"github.com/fencepost-gpu/fencepost/dev/proof/program"
)

// settleTime is how long the runtime may take to close. It has nothing to wait
// for.
const settleTime = 10 * time.Second

// Fault is an execution that was not as it must be.
type Fault struct {
	Verdict oracle.Verdict
	Cause   error
	History string
}

// Error describes the fault.
func (f *Fault) Error() string {
	text := fmt.Sprintf("verdict:  %s (missed %d, redundant %d, extra %d, wrong %d)", f.Verdict.Why, f.Verdict.Missed, f.Verdict.Redundant, f.Verdict.Extra, f.Verdict.Wrong)
	if f.Cause != nil {
		text = fmt.Sprintf("error:    %v\n%s", f.Cause, text)
	}
	return text + "\n" + f.History
}

// Unwrap is the cause.
func (f *Fault) Unwrap() error { return f.Cause }

// finish ends what the goroutines left, judges what arrived, and closes the
// runtime.
func (x *execution) finish() error {
	op := int16(len(x.program.Setup))
	for _, calls := range x.program.Threads {
		op += int16(len(calls))
	}
	for i := range x.open {
		x.do(program.Op{Kind: program.Finish, Block: uint8(i)}, op)
	}
	for b := range x.live.All() {
		x.do(program.Op{Kind: program.Free, Block: b}, op)
		op++
	}
	v := x.gate.History.Judge()
	if x.gate.givenUp != 0 || x.program.pooled() { // see the package comment
		v.Redundant, v.Extra = 0, 0
	}
	var text string
	if x.fault != nil || v.Bad() {
		text = x.gate.History.String()
	}
	err := errors.Join(x.fault, x.close(), x.gate.fault)
	if err == nil && !v.Bad() {
		return nil
	}
	if text == "" {
		text = x.gate.History.String()
	}
	return &Fault{Verdict: v, Cause: err, History: text}
}

// closePool looks whether the pool gives all of its pages back, and took none away too early.
func (x *execution) closePool() error {
	if !x.program.pooled() {
		return nil
	}
	if err := x.Backend.TrimPool(0); err != nil {
		return err
	}
	for b := range x.blocks {
		if x.gate.Torn(uint8(b)) {
			return fmt.Errorf("%w: block %d", proof.ErrTorn, b)
		}
	}
	if n := x.gate.Held(); n > 0 {
		return fmt.Errorf("%w: %d", proof.ErrLeft, n)
	}
	return nil
}

// moves is what the pool did since the set-up.
func (x *execution) moves() proof.Moves {
	m, now := x.gate.reused, x.Backend.Stats().OwnPool
	m.NoteSince(&x.before, &now)
	m.Refusals = min(1, x.refusals)
	return m
}

// close lets the device execute all and looks whether everything came back.
func (x *execution) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), settleTime)
	defer cancel()
	x.gate.Finish()
	if err := x.Backend.ReapPending(ctx); err != nil {
		return err
	}
	s := x.Backend.Stats()
	if err := proof.CheckBooks(&s, min(s.Failures, x.refused)); err != nil { // a refusal need not count as a failure
		return err
	}
	if err := x.closePool(); err != nil {
		return err
	}
	for s, l := range x.leases {
		if l != nil && (s != Adopted || x.gate.givenUp>>x.handle(uint8(s))&1 == 0) {
			if err := l.Release(); err != nil {
				return err
			}
		}
	}
	x.gate.closing = true
	interleave.End()
	if err := errors.Join(x.Backend.Close(ctx), x.Streams.Close(ctx)); err != nil {
		return err
	}
	if n := x.Streams.Stats().Events; n != 0 || x.gate.alive != 0 {
		return fmt.Errorf("%d events are left on streams, %d on the device", n, x.gate.alive)
	}
	return nil
}
