package cures

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
)

// Want is a request that may lack memory.
type Want struct {
	// Request is what is asked for. Of a reservation it has bytes and tag.
	Request *core.Request
	// Reserves: it is a reservation, which is lent nothing that is pending.
	Reserves bool
	// Waited is how long it has waited for the device already.
	Waited time.Duration
}

// inOrder reports whether what is pending on the request's own stream is lent to it.
func (w *Want) inOrder() bool { return !w.Reserves && !w.Request.Isolated }

// Looker is a want of memory whose account can be read again: Look reports whether there is room by
// now. A layer has not told such an error yet.
type Looker interface {
	error
	Look() bool
}

// Short reports whether err is a want of memory.
func Short(err error) bool { return Refused(err) || errors.Is(err, core.ErrOutOfMemory) }

// Refused reports whether err is a refusal of a budget, or of a reservation.
func Refused(err error) bool {
	return errors.Is(err, core.ErrOutOfBudget) || errors.Is(err, core.ErrClaimExceeded)
}

// curable reports whether err is a want of memory that memory given back may cure. A request that
// is larger than the budget, or than its reservation, is not.
func curable(err error) bool {
	short, ok := errors.AsType[*core.OutOfBudgetError](err)
	if !ok {
		return Short(err)
	}
	most := short.Limit
	if short.Claim != 0 {
		most = short.Reserved
	}
	return most == 0 || short.Requested <= most
}

// The bounds of one search. Others may take what was given back, each time.
const (
	maxLooks     = 16
	maxGivenUp   = 64
	maxAnswers   = 16
	slowestPause = time.Millisecond
)

// Search is the search for memory of one request. One goroutine at a time uses it.
type Search struct {
	room  *Room
	want  Want
	first error
	began time.Time
	// given is what each quarantine has given up, and seen the signs, before the last try.
	given   []uint64
	seen    Signs
	reaped  bool
	reapErr error
	// relieved: something was given up, given back or waited for.
	relieved bool
	// looks, gaveUp and answers count what was tried.
	looks, gaveUp, answers int
	wait                   wait
}

// Seek tries a request, and again as long as a cure makes that worthwhile. It returns the error of
// the last try, with how long the request waited. The caller tells it with [Room.Tell].
func (r *Room) Seek(ctx context.Context, w Want, try func() error) (s *Search, err error) {
	given := r.given()
	if err = try(); err == nil || !Short(err) || WasSought(err) {
		return nil, err
	}
	s = r.Begin(w, err)
	s.given = given
	ended := false
	defer func() {
		if !ended { // the program's code panics
			_ = s.End(err)
		}
	}()
	for s.Another(ctx, err) {
		if err = try(); err == nil {
			break
		}
	}
	ended = true
	err = s.End(err)
	return s, err
}

// Begin begins a search for a request that was refused with err.
func (r *Room) Begin(w Want, err error) *Search {
	return &Search{room: r, want: w, first: err, began: r.now(), given: r.given()}
}

// Reaped is the error of the reap that the search made, if any. It may be the reason of the refusal.
func (s *Search) Reaped() error { return s.reapErr }

// order is what is tried for a request that was refused with err. Each cure reports whether the
// request is worth another try.
var order = []func(s *Search, ctx context.Context, err error) bool{
	(*Search).reap, (*Search).look, (*Search).giveUp, (*Search).askProgram, (*Search).waitForDevice,
}

// Another tries the cures, and reports whether the request is worth another try. Then err is not
// told to the caller.
func (s *Search) Another(ctx context.Context, err error) bool {
	if s.room.ask == nil || !curable(err) || effortIn(ctx).none {
		return false
	}
	for _, cure := range order {
		if cure(s, ctx, err) {
			s.room.hide(err)
			s.given, s.seen = s.room.given(), s.room.Signs()
			return true
		}
	}
	return false
}

// hide keeps an error that the caller is not told out of the statistics.
func (r *Room) hide(err error) {
	if _, untold := errors.AsType[Looker](err); untold {
		return
	}
	if Refused(err) {
		r.refusals.Add(1)
		return
	}
	r.failures.Add(1)
}

// reap asks the device once, and once more after a wait.
func (s *Search) reap(ctx context.Context, _ error) bool {
	if s.reaped {
		return false
	}
	s.reaped = true
	s.reapErr = s.room.ask.ReapPending(ctx)
	return true
}

// look reads the books of the account that refused.
func (s *Search) look(_ context.Context, err error) bool {
	short, ok := errors.AsType[Looker](err)
	if !ok || s.looks == maxLooks || !short.Look() {
		return false
	}
	s.looks++
	return true
}

// giveUp has a part of each quarantine given up, unless the device has yet to pass what lacks.
func (s *Search) giveUp(ctx context.Context, err error) bool {
	if s.gaveUp == maxGivenUp || !s.want.inOrder() && s.room.pendingSuffices(err) {
		return false
	}
	gave := false
	for i, q := range s.room.quarantines {
		gave = q.GiveUp(ctx, s.want.Request.Bytes, s.given[i]) || gave
	}
	if !gave {
		return false
	}
	s.gaveUp++
	s.relieved = true
	_ = s.room.ask.ReapPending(ctx) // a failure shows in the next try
	return true
}

// askProgram asks the program's function.
func (s *Search) askProgram(ctx context.Context, _ error) bool {
	if s.answers == maxAnswers || ctx.Err() != nil {
		return false
	}
	s.answers++
	if !s.room.AskProgram(ctx, s.want.Request.Bytes) {
		return false
	}
	s.relieved = true
	_ = s.room.ask.ReapPending(ctx) // a failure shows in the next try
	return true
}

// AskProgram asks the program's function for so many bytes, and reports whether it gave some back.
// Of what the function does with its context it is not asked again.
func (r *Room) AskProgram(ctx context.Context, bytes uint64) (gave bool) {
	e := effortIn(ctx)
	if r.setup.Program == nil || e.answers {
		return false
	}
	e.answers = true
	usercode.Call("OnShortage", func() { gave = r.setup.Program(&withEffort{ctx, e}, bytes) })
	return gave
}

// given is how many blocks each quarantine has given up.
func (r *Room) given() []uint64 {
	given := make([]uint64, len(r.quarantines))
	for i, q := range r.quarantines {
		given[i] = q.Given()
	}
	return given
}

// blocked is what is freed and no reap brings.
func (r *Room) blocked() (bytes uint64) {
	for _, q := range r.quarantines {
		bytes += q.Blocked()
	}
	return bytes
}

// pendingSuffices reports whether a request lacks only what the device has yet to pass.
func (r *Room) pendingSuffices(err error) bool {
	short, ok := errors.AsType[*core.OutOfBudgetError](err)
	return ok && short.Remaining+saturatingSub(short.Pending, r.blocked()) >= short.Requested
}

// saturatingSub is a-b, or zero if b is more.
func saturatingSub(a, b uint64) uint64 { return max(a, b) - b }

// End ends the search with the error of the last try, and returns that with how the request waited.
func (s *Search) End(err error) error {
	if _, untold := errors.AsType[Looker](err); untold && !Refused(s.first) { // others took the charge meanwhile
		err = s.first
		s.room.failures.Add(^uint64(0)) // it is told
	}
	s.endWait(err)
	if err == nil && s.relieved {
		s.room.relieved.Add(1)
	}
	return refuse.Waited(err, s.waitedFor(), s.want.Request.Bytes, s.want.Request.Tag)
}

// Tell tells of a refusal, err, that the caller hears, and if err is nil of a search that has
// relieved a request. s is nil if there was none.
func (r *Room) Tell(ctx context.Context, s *Search, req *core.Request, err error) {
	switch {
	case r.setup.Events == nil, err == nil && (s == nil || !s.relieved):
		return
	case err != nil && (!Short(err) || effortIn(ctx).own):
		return
	}
	e := oplog.Event{
		Op: oplog.OpRefusal, Layer: r.setup.Layer, Time: r.now(), Ordinal: r.ask.Ordinal(), Stream: req.Stream,
		Tag:       req.Tag.OrUntagged(),
		Block:     core.BlockID{AllocStream: req.Stream, Ordinal: r.ask.Ordinal()},
		Requested: cmp.Or(req.Requested, req.Bytes),
		Bytes:     req.Bytes, Relieved: err == nil, Span: core.SpanOf(ctx), Err: err,
	}
	if err == nil {
		e.Duration, e.Time, e.Err = e.Time.Sub(s.began), s.began, s.first
	}
	usercode.Call("Events", func() { r.setup.Events.Emit(ctx, e) })
}

// Sought marks an error for which memory was sought already. A part of the stack above does not
// look again.
func Sought(err error) error { return &sought{err} }

type sought struct{ error }

func (e *sought) Unwrap() error { return e.error }

// WasSought reports whether [Sought] marked the error.
func WasSought(err error) bool {
	_, ok := errors.AsType[*sought](err)
	return ok
}

// Bare is an error without its mark, if nothing wraps that.
func Bare(err error) error {
	if marked, ok := err.(*sought); ok { //nolint:errorlint // what a layer wraps stays as it is
		return marked.error
	}
	return err
}
