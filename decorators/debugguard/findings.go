package debugguard

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
)

// report counts a finding and hands it on.
func (r *Resource) report(f core.Finding) {
	r.count.findings.Add(1)
	if r.cfg.Findings == nil {
		return
	}
	f.Source, f.Time = "debugguard", r.cfg.Advanced.Now()
	usercode.Call("debugguard.Config.Findings", func() { r.cfg.Findings(f) })
}

// victim begins a finding about a known block; rec must be locked.
func (r *Resource) victim(kind core.FindingKind, rec *ledger.Record) core.Finding {
	f := core.Finding{Kind: kind, Victim: rec.Block()}
	f.AllocStack, f.FreeStack = rec.Stacks()
	f.Allocated, f.Freed = rec.Times()
	f.Uses, f.OlderUses = r.ledger.LastUses(rec)
	return f
}

// untold is where a finding about a call in a span is to be told: nowhere if the
// call is refused for it, because the trace of its error then tells of it.
func (r *Resource) untold(span core.SpanContext) core.SpanContext {
	if r.cfg.Advanced.Refuse {
		return core.SpanContext{}
	}
	return span
}

// IsCanary reports whether a block is one of the guard's own that holds the
// place of freed ones.
func (r *Resource) IsCanary(id core.BlockID) bool { return r.canaries.has(id.Generation) }

// misused unlocks rec and reports a misuse of its block by the caller, which
// gets err. In mode Off it is refused all the same, but not reported.
func (r *Resource) misused(kind core.FindingKind, rec *ledger.Record, err error, text string) error {
	f := r.victim(kind, rec)
	rec.Unlock()
	if r.Mode() == Off {
		return err
	}
	return r.accuse(f, err, "%s", text)
}

// accuse reports f, which a call of the program's has done that gets err.
func (r *Resource) accuse(f core.Finding, err error, format string, args ...any) error {
	f.CallStack = core.CaptureStack(1)
	f.Text, f.Err = fmt.Sprintf(format, args...)+", at "+cmp.Or(f.CallStack.Caller(), unknownPlace), err
	r.report(f)
	return err
}

const unknownPlace = "an unknown place"

// caller is the first frame of the program that made the call.
func caller() string { return cmp.Or(core.CaptureStack(1).Caller(), unknownPlace) }

// doubleFree unlocks rec and reports that its block is freed again.
func (r *Resource) doubleFree(id core.BlockID, rec *ledger.Record) error {
	b := rec.Block()
	return r.misused(names.FindingDoubleFree, rec,
		&core.UseAfterFreeError{Op: "Deallocate", Generation: id.Generation, Block: id, State: b.State, Tag: b.Tag},
		fmt.Sprintf("generation %s tagged %q is %s and was freed again", id.Generation, b.Tag, b.State))
}

// wildPointer unlocks rec and reports an id whose pointer is not in its block.
func (r *Resource) wildPointer(op string, id core.BlockID, stream core.StreamID, rec *ledger.Record) error {
	b := rec.Block()
	return r.misused(names.FindingStaleHandle, rec,
		&core.StreamMisuseError{Op: op, Block: id, Stream: stream, Reason: "the pointer does not lie inside the block of that generation"},
		fmt.Sprintf("%s named generation %s tagged %q by pointer %#x, which is not in its %d bytes at %#x", op, id.Generation, b.Tag, id.Ptr, b.Bytes, b.ID.Ptr))
}

// foreignDevice reports the free of another device's block.
func (r *Resource) foreignDevice(id core.BlockID) error {
	err := &core.StreamMisuseError{Op: "Deallocate", Block: id, Stream: id.AllocStream,
		Reason: fmt.Sprintf("the block belongs to device %d, this resource serves device %d", id.Ordinal, r.Ordinal())}
	return r.accuse(core.Finding{Kind: names.FindingForeignFree, Victim: core.Block{ID: id}}, err,
		"block %v of device %d was freed on device %d", id, id.Ordinal, r.Ordinal())
}

// unknownFree reports the free of a block without a record, which the
// upstream does not hold live either. A generation that the ledger cannot
// have forgotten was never allocated here.
func (r *Resource) unknownFree(id core.BlockID, state core.BlockState) error {
	err := &core.UseAfterFreeError{Op: "Deallocate", Generation: id.Generation, Block: id, State: state}
	f := core.Finding{Kind: names.FindingStaleHandle, Victim: core.Block{ID: id, State: state}}
	switch {
	case state == core.Retired:
		f.Kind = names.FindingDoubleFree
		return r.accuse(f, err, "generation %s, which was allocated while the guard was off, was freed again", id.Generation)
	case !r.ledger.MayForget(id.Generation):
		f.Kind = names.FindingForeignFree
		return r.accuse(f, err, "block %v was never allocated here and was freed", id)
	}
	return r.accuse(f, err, "generation %s, which is not live and older than what the ledger remembers, was freed", id.Generation)
}

// refused looks at an upstream's refusal of a use, and returns the error for
// the caller. A use of a block that was freed and is remembered, a pointer
// outside its block and a stream that is not leased are found.
func (r *Resource) refused(err error, use late) error {
	if r.Mode() == Off {
		return err
	}
	var uaf *core.UseAfterFreeError
	var misuse *core.StreamMisuseError
	switch {
	case errors.As(err, &uaf):
		use.id = uaf.Block
		rec := r.ledger.LockAny(use.id)
		if rec == nil {
			return err
		}
		if rec.State() != core.Live {
			return r.staleUse(use, rec)
		}
		rec.Unlock()
	case !errors.As(err, &misuse):
	case misuse.Unleased:
		r.unleased(use, misuse)
	case misuse.Block.Generation != 0 && misuse.Block.Ordinal == r.Ordinal():
		return r.outside(err, use, misuse.Block)
	}
	return err
}

// outside finds a pointer that is not in its block.
func (r *Resource) outside(err error, use late, id core.BlockID) error {
	rec := r.ledger.Lock(id)
	if rec == nil {
		return err
	}
	if rec.Guard == nil && !rec.Contains(id.Ptr) {
		return r.wildPointer(use.op, id, use.stream, rec)
	}
	rec.Unlock()
	return err
}

// unleased reports work on a stream that is not leased. It has no victim:
// nothing was enqueued.
func (r *Resource) unleased(use late, err error) {
	f := core.Finding{Kind: names.FindingStaleHandle, Suspects: []core.UseRecord{{Launch: use.launch, Stream: use.stream, Time: monotime.Now().Time()}}}
	_ = r.accuse(f, err, "%s for launch %q named stream %v, which is not leased", use.op, use.launch, use.stream)
}

// late is a use of a block that is not live any more.
type late struct {
	op     string
	id     core.BlockID
	stream core.StreamID
	// launch is the name of the launch, and uses what it declares.
	launch string
	uses   []core.Use
}

// lateIn is a use by a launch, of no block yet.
func lateIn(req *core.UseRequest) late {
	return late{op: "PrepareUse", stream: req.Stream, launch: names.Bound(req.Launch), uses: req.Uses}
}

// what is what the program named the block by, and call the call that it made.
func (use late) what() string {
	if slices.ContainsFunc(use.uses, func(u core.Use) bool { return u.Slice && u.Block.Generation == use.id.Generation }) {
		return "slice"
	}
	return "block"
}

func (use late) call() string {
	switch {
	case use.op != "PrepareUse":
		return use.op
	case use.launch == "":
		return "Launch"
	}
	return fmt.Sprintf("Launch %q", use.launch)
}

// staleUse unlocks rec and reports that its block is used after its free. If
// its memory is another block's by now, the use races that block's.
func (r *Resource) staleUse(use late, rec *ledger.Record) error {
	b := rec.Block()
	err := &core.UseAfterFreeError{Op: use.op, Generation: use.id.Generation, Block: use.id, State: b.State, Tag: b.Tag}
	f := r.victim(names.FindingStaleHandle, rec)
	rec.Unlock()
	if r.Mode() == Off {
		return err
	}
	text := fmt.Sprintf("a freed %s was passed to %s: generation %s tagged %q is %s", use.what(), use.call(), b.ID.Generation, b.Tag, b.State)
	if heir, ok := r.ledger.Heir(b); ok {
		f.Kind = names.FindingReuseRace
		text = fmt.Sprintf("%s; its memory at %#x belongs to generation %s tagged %q by now, which is %s", text, b.ID.Ptr, heir.ID.Generation, heir.Tag, heir.State)
	}
	f.Suspects = []core.UseRecord{{Launch: use.launch, Stream: use.stream, Time: monotime.Now().Time()}}
	return r.accuse(f, err, "%s", text)
}
