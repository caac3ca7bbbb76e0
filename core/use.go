package core

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
)

// Use declares what a launch does with one block.
type Use struct {
	Block  BlockID
	Access Access
	// Slice is set by typed memory: findings then speak of a slice, as the program does.
	Slice bool
	// Offset and Bytes are the part of the block that the launch touches, from Block.Ptr on;
	// no bytes mean all of the block. Order goes by whole blocks: only the simulated device
	// looks at the part, and finds accesses outside of it.
	Offset, Bytes uint64
}

// UseRequest asks for the fences of one launch.
type UseRequest struct {
	// Stream is where the launch will be enqueued.
	Stream StreamID
	// Launch names the launch in traces, logs and findings; a name of more than
	// 256 bytes is cut, as a [Tag] is.
	Launch string
	// Uses are the blocks that the launch touches, in any order. A block
	// named twice counts once, with the combined access. The slice is not
	// kept.
	Uses []Use
	// Pointers are device addresses that the launch hands to the device, as
	// kernel arguments are. A guard checks that each of them that lies in a
	// block belongs to one of Uses; no other layer reads them. The slice is not
	// kept.
	Pointers []uint64
	// Words are other numbers of the size of an address that the launch hands to the
	// device. A guard suspects those that happen to be addresses in a block which is
	// none of Uses. The slice is not kept.
	Words []uint64
	// Wait makes a conflicting open intent on another stream something to
	// wait for, until ctx ends, instead of a refusal.
	Wait bool
	// OwnWork is what the runtime's own copies say of themselves; leave it nil. Layers
	// pass it on.
	OwnWork any
	// Span is set by a tracing layer: the launch's span, or if that is not sampled
	// the caller's, in whose trace a finding about the launch is told.
	Span SpanContext
	// Began is set by the first layer that reads the clock, for those below; leave it zero.
	Began monotime.Instant
}

// PreparedUse is one block of an open intent.
type PreparedUse struct {
	Block  BlockID
	Access Access
	Tag    Tag
	// Requested and Bytes are the block's sizes.
	Requested, Bytes uint64
	// Waits is how many waits were queued for this block, Elided how many of
	// its dependencies on other streams needed none.
	Waits, Elided int
	// Span is set by a tracing layer before FinishUse: later waits for this
	// use link to it.
	Span SpanRef
	// Handle belongs to the resource that opened the intent.
	Handle any
}

// Waited is a dependency for which a wait was queued.
type Waited struct {
	// Use is the index in Uses of the block that has the dependency.
	Use int
	// Stream is where the work waited for was enqueued, Span its finish or
	// alloc span if one was recorded.
	Stream StreamID
	Span   SpanRef
	// For names that work; zero if the resource does not say. Launch is the name of the launch waited for,
	// if it was one, and Access what that did with the block.
	For    WaitRef
	Launch string
	Access Access
}

// Intent is an announced launch between PrepareUse and its end. Intents are
// pooled: nothing of one may be touched after its ticket was ended. They are
// exported for authors of resources, who make them with [OpenIntent].
type Intent struct {
	// ID is the launch's number, unique in the process. A later launch may have
	// a smaller one.
	ID     uint64
	Stream StreamID
	Launch string
	// Began is the request's.
	Began monotime.Instant
	// Uses are sorted by generation, each block once.
	Uses []PreparedUse
	// Waited lists the waits that were queued.
	Waited []Waited
	// CrossStream is set if a block was last written on another stream, Blocked if
	// PrepareUse waited for another launch to end.
	CrossStream, Blocked bool
	// Context is what the launch function gets, if a layer replaced it: it
	// carries the launch's span.
	Context context.Context
	// Handle belongs to the resource that opened the intent, Trace to the
	// tracing layer, Guard to the guards: one that finds another's there keeps that
	// with its own.
	Handle, Trace, Guard any

	// round is the number of the opening, which is even, and one more while
	// a caller looks, see [Intent.WhileOpen].
	round atomic.Uint64
	// lastID is the newest number that was taken of the intent's share of
	// them: a counter for all would be written by every launch of the process.
	lastID uint64
	// tags are those of FirstTags if tagged is set.
	tags   [4]Tag
	tagged bool
	_      [8]byte // intents share no cache line
}

// The low bits of a round: a caller looks, the intent is open, and its ticket was claimed.
const (
	looking = 1 << iota
	isOpen
	claimed
	nextRound
)

// idShare is how many numbers an intent takes at a time.
const idShare = 256

func (in *Intent) nextID() uint64 {
	if in.lastID%idShare == 0 {
		in.lastID = lastLaunch.Add(idShare) - idShare
	}
	in.lastID++
	return in.lastID
}

var intents = sync.Pool{New: func() any { return new(Intent) }}

// OpenIntent checks r, which it neither keeps nor changes, and returns an intent of owner for it. Errors are
// [InvalidRequestError] for an access of none and [StreamMisuseError] for
// another device's block. A block that is named twice, perhaps through two
// pointers into it, is kept under the first of them.
func OpenIntent(owner Resource, r *UseRequest) (*Intent, error) {
	in := intents.Get().(*Intent)
	if err := in.Open(owner.Ordinal(), r); err != nil {
		intents.Put(in)
		return nil, err
	}
	return in, nil
}

// Open is OpenIntent with an intent that its owner, of the device of that number, has for itself, and that is closed.
func (in *Intent) Open(ordinal int, r *UseRequest) error {
	in.ID, in.Stream, in.Launch, in.Began = in.nextID(), r.Stream, names.Bound(r.Launch), r.Began
	in.Uses = slices.Grow(in.Uses, len(r.Uses))[:len(r.Uses)] // all zero, see Close
	n := 0
	for i := range r.Uses {
		u := &r.Uses[i]
		if u.Block.Generation == NoBytes {
			continue
		}
		if !u.Access.Valid() || u.Block.Ordinal != ordinal {
			in.Close()
			return useError(ordinal, u, r.Stream)
		}
		in.Uses[n].Block, in.Uses[n].Access = u.Block, u.Access
		n++
	}
	in.Uses = in.Uses[:n]
	in.merge()
	return nil
}

// useError is why a use is refused.
func useError(ordinal int, u *Use, stream StreamID) error {
	if !u.Access.Valid() {
		return &InvalidRequestError{Op: "PrepareUse", Field: "Access", Reason: fmt.Sprintf("%v of block %v: say Read, Write or ReadWrite", u.Access, u.Block)}
	}
	return &StreamMisuseError{Op: "PrepareUse", Block: u.Block, Stream: stream,
		Reason: fmt.Sprintf("the block belongs to device %d, this runtime serves device %d: prepare each end of a peer copy in its own runtime", u.Block.Ordinal, ordinal)}
}

// merge sorts the uses by generation and folds the duplicates.
func (in *Intent) merge() {
	if in.ascending() {
		return
	}
	slices.SortStableFunc(in.Uses, func(a, b PreparedUse) int { return cmp.Compare(a.Block.Generation, b.Block.Generation) })
	kept := 0
	for i := range in.Uses {
		if kept > 0 && in.Uses[kept-1].Block.Generation == in.Uses[i].Block.Generation {
			in.Uses[kept-1].Access = in.Uses[kept-1].Access.Combine(in.Uses[i].Access)
			continue
		}
		in.Uses[kept] = in.Uses[i]
		kept++
	}
	clear(in.Uses[kept:])
	in.Uses = in.Uses[:kept]
}

// ascending reports whether there is nothing to sort or fold.
func (in *Intent) ascending() bool {
	for i := 1; i < len(in.Uses); i++ {
		if in.Uses[i-1].Block.Generation >= in.Uses[i].Block.Generation {
			return false
		}
	}
	return true
}

// Writes reports whether the launch declares to write a block.
func (in *Intent) Writes(g Generation) bool {
	for i := range in.Uses { // by pointer: a tracing layer may be setting their spans
		if u := &in.Uses[i]; u.Block.Generation == g {
			return u.Access.Writes()
		}
	}
	return false
}

// Recycle returns the intent to the pool, after it was ended or refused.
func (in *Intent) Recycle() {
	in.Close()
	in.Handle = nil
	intents.Put(in)
}

// Close clears an intent that was ended or refused, but for Handle, for its owner to open it again.
func (in *Intent) Close() {
	for i := range in.Uses {
		u := &in.Uses[i] // most have one, for which a call to clear takes longer
		*u = PreparedUse{}
	}
	in.Uses, in.Waited = in.Uses[:0], in.Waited[:0]
	in.Launch, in.CrossStream, in.Blocked, in.Context, in.Trace, in.tagged = "", false, false, nil, nil, false
}

// Ticket returns the proof that owner opened the intent.
func (in *Intent) Ticket(owner Resource) Ticket {
	return Ticket{owner: owner, intent: in, round: in.round.Add(isOpen)}
}

// WhileOpen calls look and reports true, or reports false if the intent is not open, or who ends it has
// claimed that. The end of the launch waits for look to return: it must not block and must call
// nothing of the launch's ticket. Of several callers one looks at a time. It may be called at any time.
func (in *Intent) WhileOpen(look func()) bool {
	for {
		switch round := in.round.Load(); {
		case round&(isOpen|claimed) != isOpen:
			return false
		case round&looking != 0:
			runtime.Gosched()
		case in.round.CompareAndSwap(round, round|looking):
			look()
			in.round.Store(round)
			return true
		}
	}
}

// Ticket is the caller's proof of an open intent. It is used once, with
// FinishUse or AbortUse of the runtime that gave it. Its methods may be
// called only while it is open. The zero Ticket is refused.
type Ticket struct {
	owner  Resource
	intent *Intent
	round  uint64
}

// Intent returns the open intent, nil for the zero ticket.
func (t Ticket) Intent() *Intent { return t.intent }

// Waits is the number of waits that were queued.
func (t Ticket) Waits() int { return len(t.intent.Waited) }

// Elided is the number of dependencies on other streams that needed no wait.
func (t Ticket) Elided() int {
	n := 0
	for i := range t.intent.Uses {
		n += t.intent.Uses[i].Elided
	}
	return n
}

// Context returns the context for the launch: ctx, or the one in which a
// tracing layer put the launch's span.
func (t Ticket) Context(ctx context.Context) context.Context {
	if t.intent != nil && t.intent.Context != nil {
		return t.intent.Context
	}
	return ctx
}

// IsOpen reports whether the ticket has not been ended.
func (t Ticket) IsOpen() bool { return t.intent != nil && t.intent.round.Load()&^looking == t.round }

// Claim spends the ticket and returns another one for the same launch, or reports false if it was
// spent before. So a layer can tell which of several callers ends a launch: the one that gets it.
func (t Ticket) Claim() (Ticket, bool) {
	other := Ticket{owner: t.owner, intent: t.intent, round: t.round + nextRound | claimed}
	return other, t.intent != nil && t.swap(other.round)
}

// Disclaim makes the ticket good again that Claim has spent for the other one, unless that was spent.
func (t Ticket) Disclaim(other Ticket) { other.swap(t.round) }

// swap makes the round another one if the ticket is open, as soon as no look is under way.
func (t Ticket) swap(round uint64) bool {
	return t.intent.round.CompareAndSwap(t.round, round) || t.swapAfterLook(round)
}

func (t Ticket) swapAfterLook(round uint64) bool {
	for !t.intent.round.CompareAndSwap(t.round, round) {
		if !t.IsOpen() {
			return false
		}
		runtime.Gosched()
	}
	return true
}

// End spends the ticket for owner and returns its intent, which owner then
// recycles. A zero, spent or foreign ticket is a [StreamMisuseError].
func (t Ticket) End(owner Resource, op string) (*Intent, error) {
	switch {
	case t.intent == nil:
		return nil, &StreamMisuseError{Op: op, Reason: "the ticket is empty: end with the ticket that PrepareUse returned"}
	case t.owner != owner:
		return nil, &StreamMisuseError{Op: op, Reason: "the ticket belongs to another runtime: end it where it was prepared"}
	case !t.swap(t.round&^(isOpen|claimed) + nextRound):
		return nil, &StreamMisuseError{Op: op, Reason: "the ticket was ended before: each ticket is finished or aborted once"}
	}
	return t.intent, nil
}

// WaitRef names what a wait was queued for, so that a history can point from
// the one to the other. One of its fields is zero; both are if it names nothing.
type WaitRef struct {
	// Launch is the number of the launch waited for; see [Intent].
	Launch uint64
	// Block is the block waited for: its allocation was to be ready, or a use of it
	// was recorded without a launch.
	Block Generation
}
