package core

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencepost-gpu/fencepost/internal/legible"
	"github.com/fencepost-gpu/fencepost/internal/size"
)

// Sentinels for errors.Is. Each typed error below matches one of them.
var (
	// ErrOutOfBudget: a budget refused the request. See [OutOfBudgetError].
	ErrOutOfBudget = errors.New("out of budget")
	// ErrClaimExceeded: a request needs more than is left of the reservation
	// that it names. Unlike [ErrOutOfBudget] it is a mistake of the program, which
	// reserved too little: what others give back does not help, and nor does
	// trying again. See [OutOfBudgetError].
	ErrClaimExceeded = errors.New("reservation exceeded")
	// ErrDriver: the device driver failed. See [DriverError].
	ErrDriver = errors.New("driver error")
	// ErrOutOfMemory: the pool or the driver has no memory left for the request. See
	// [OutOfMemoryError].
	ErrOutOfMemory = errors.New("out of device memory")
	// ErrSticky: the device's context is lost; every later call fails too.
	ErrSticky = errors.New("sticky driver error")
	// ErrStreamMisuse: the stream-ordered contract was violated. See
	// [StreamMisuseError].
	ErrStreamMisuse = errors.New("stream misuse")
	// ErrUseAfterFree: the block is not live. See [UseAfterFreeError].
	ErrUseAfterFree = errors.New("use after free")
	// ErrOutOfBounds: bytes outside a block were changed. See
	// [OutOfBoundsError].
	ErrOutOfBounds = errors.New("out of bounds")
	// ErrInvalidRequest: the request itself is malformed. See
	// [InvalidRequestError].
	ErrInvalidRequest = errors.New("invalid request")
	// ErrClosed: the runtime or resource was closed.
	ErrClosed = errors.New("closed")
)

// OutOfBudgetError is a refusal by a budget, with what an on-call engineer
// needs to see why. All sizes are bytes at the time of the refusal, except
// that Remaining is never negative. The shape follows the original's
// ResourceError::OutOfBudget.
type OutOfBudgetError struct {
	// Requested is what was asked for, Remaining what a request could get.
	Requested, Remaining uint64
	// Limit is the budget; Live, Pending, Quarantined, Claimed add up to
	// what is charged against it.
	Limit, Live, Pending, Quarantined, Claimed uint64
	// Lent is how many of the pending bytes count as room: those lent to the streams that freed them,
	// and those that the request's own stream freed and could be lent. Where Limit is not zero and no
	// reservation was asked, Remaining is Limit less the charge, plus Lent, and at least zero.
	Lent uint64
	// LimitedBy names who allows no more than Limit where that is less than the budget was set to,
	// such as a file of a control group; empty if the limit is the budget's own.
	LimitedBy string
	// Claim is the reservation that was asked, and Reserved its size; both are
	// zero for the general ledger. Remaining is the reservation's then.
	Claim    ClaimID
	Reserved uint64
	Tag      Tag
	// Holders are the largest holders, largest first. A reservation that is
	// exceeded has none: what others hold is not the reason.
	Holders []Holder
	// MoreHolders is how many more there are, and MoreBytes what they hold together.
	MoreHolders, MoreBytes uint64
	// Wait is how long the request waited, and what stood before it. If Wait.Ahead is not zero the
	// request was refused for those ahead, and Remaining may have sufficed.
	Wait Wait
}

// Wait is how a request for memory had waited, and how it stood, when it was refused or its context
// ended. The zero Wait is that of a request that did not wait.
type Wait struct {
	// For is how long the request had waited.
	For time.Duration
	// Pending is the bytes that were freed and that the device had not come to, when the request
	// began to wait for these.
	Pending uint64
	// Ahead is how many requests stood before it in line, AheadBytes what they asked for together,
	// and First the tag of the first of them.
	Ahead      int
	AheadBytes uint64
	First      Tag
	// Learning: the request was a guess, because nothing is known yet of what jobs of its tag need.
	Learning bool
}

// String says what is known, such as "waited 1.2s; in line behind 3 requests for 5.2 MiB, the first
// of \"sort\"". It is empty of the zero Wait.
func (w Wait) String() string { return w.text(size.Of) }

// figures are its bytes.
func (w Wait) figures() []uint64 { return []uint64{w.Pending, w.AheadBytes} }

func (w Wait) text(of func(uint64) string) string {
	var facts []string
	if w.For != 0 {
		unit := time.Millisecond
		if w.For < 10*unit {
			unit = time.Microsecond
		}
		facts = append(facts, fmt.Sprintf("waited %v", w.For.Round(unit)))
	}
	if w.Pending != 0 {
		facts = append(facts, "the device had not come to "+of(w.Pending)+" that are freed")
	}
	if w.Ahead != 0 {
		facts = append(facts, fmt.Sprintf("in line behind %s for %s, the first of %s", counted(uint64(w.Ahead), "request"),
			of(w.AheadBytes), legible.Value(w.First.OrUntagged())))
	}
	if w.Learning {
		facts = append(facts, "what jobs of this name need is being learned")
	}
	return strings.Join(facts, "; ")
}

func counted(n uint64, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// Holder is what one tag holds in one state: live, retired (pending),
// quarantined by a guard, or claimed by reservations and not drawn from them.
type Holder struct {
	Tag   Tag
	State BlockState
	Bytes uint64
	// Blocks is how many blocks, of a State of [Claimed] how many reservations.
	Blocks uint64
}

// String is "sort live 4.0 KiB in 2 blocks".
func (h Holder) String() string { return h.text(size.Of) }

func (h Holder) text(of func(uint64) string) string {
	unit := "block"
	if h.State == Claimed {
		unit = "reservation"
	}
	tag := legible.Name(strings.ToValidUTF8(string(h.Tag), "\uFFFD")) // it is another request's: it may hold anything
	return fmt.Sprintf("%s %s %s in %s", tag, h.State, of(h.Bytes), counted(h.Blocks, unit))
}

// Error explains the refusal on one line: what stood before the request comes first, and the
// holders last. Sizes are rounded, but those that differ never read the same.
func (e *OutOfBudgetError) Error() string {
	if e.Claim != 0 {
		return e.claimExceeded()
	}
	of := size.Figures(slices.Concat([]uint64{e.Requested, e.Remaining, e.Limit, e.Live, e.Pending, e.Quarantined, e.Claimed, e.Lent},
		e.Wait.figures(), holdersFigures(e.Holders, e.MoreBytes))...)
	var b strings.Builder
	fmt.Fprintf(&b, "out of budget: requested %s for %s, remaining %s of %s", of(e.Requested),
		legible.Value(e.Tag.OrUntagged()), of(e.Remaining), of(e.Limit))
	if w := e.Wait.text(of); w != "" {
		b.WriteString("; " + w)
	}
	fmt.Fprintf(&b, " (live %s, pending %s, quarantined %s, claimed %s)", of(e.Live), of(e.Pending),
		of(e.Quarantined), of(e.Claimed))
	if e.Lent != 0 {
		fmt.Fprintf(&b, "; %s of what is pending are lent to the streams that freed them, or would be, and count as remaining",
			of(e.Lent))
	}
	if e.LimitedBy != "" {
		b.WriteString("; the limit is that of " + e.LimitedBy)
	}
	b.WriteString(holdersText(of, e.Holders, e.MoreHolders, e.MoreBytes))
	return b.String()
}

// holdersText is the part of a refusal that names holders.
func holdersText(of func(uint64) string, holders []Holder, more, moreBytes uint64) string {
	var b strings.Builder
	for i, h := range holders {
		sep := ", "
		if i == 0 {
			sep = "; largest holders: "
		}
		b.WriteString(sep + h.text(of))
	}
	switch {
	case more == 1:
		fmt.Fprintf(&b, ", and 1 more holds %s", of(moreBytes))
	case more > 1:
		fmt.Fprintf(&b, ", and %d more hold %s", more, of(moreBytes))
	}
	return b.String()
}

// holdersFigures are the bytes of that part.
func holdersFigures(holders []Holder, moreBytes uint64) []uint64 {
	figures := []uint64{moreBytes}
	for _, h := range holders {
		figures = append(figures, h.Bytes)
	}
	return figures
}

func (e *OutOfBudgetError) claimExceeded() string {
	drawn := e.Reserved - min(e.Reserved, e.Remaining)
	of := size.Figures(append(e.Wait.figures(), e.Requested, e.Remaining, e.Reserved, drawn)...)
	wait := e.Wait.text(of)
	if wait != "" {
		wait = "; " + wait
	}
	return fmt.Sprintf("reservation exceeded: requested %s for %s, remaining %s of %s reserved (drawn %s)%s: "+
		"reserve more, at least the sum of what is allocated at a time; freed memory counts until the device has passed its free",
		of(e.Requested), legible.Value(e.Tag.OrUntagged()), of(e.Remaining), of(e.Reserved), of(drawn), wait)
}

// Is matches [ErrClaimExceeded] if a reservation refused, and [ErrOutOfBudget]
// otherwise.
func (e *OutOfBudgetError) Is(target error) bool {
	if e.Claim != 0 {
		return target == ErrClaimExceeded
	}
	return target == ErrOutOfBudget
}

// WaitError is the end of a wait for memory that a budget did not refuse: the request's context
// ended, or the device has no memory. It matches what Err does.
type WaitError struct {
	// Requested is the bytes that were asked for.
	Requested uint64
	Tag       Tag
	Wait      Wait
	// Limit is the budget when the wait of a job ended, and Remaining what a request could get of it
	// then. Kept is how much of that had to stay free beside it, for jobs inside that may need more
	// than they have reserved. So it waited because Wait.Ahead is not zero, or because Remaining is
	// less than Requested and Kept, if no room came just then. All of these fields are zero where
	// there is no budget, or the budget was not what the request waited for.
	Limit, Remaining, Kept uint64
	// Holders are the largest holders then, largest first; MoreHolders is how many more there were,
	// and MoreBytes what those held together.
	Holders                []Holder
	MoreHolders, MoreBytes uint64
	// Err is why the wait ended.
	Err error
}

// Error says on one line what was waited for, how that stood, who held the memory, and why it
// ended.
func (e *WaitError) Error() string {
	of := size.Figures(slices.Concat([]uint64{e.Requested, e.Limit, e.Remaining, e.Kept}, e.Wait.figures(),
		holdersFigures(e.Holders, e.MoreBytes))...)
	wait := e.Wait.text(of)
	if wait == "" {
		wait = "did not wait"
	}
	if e.Limit != 0 {
		wait += fmt.Sprintf("; remaining %s of %s", of(e.Remaining), of(e.Limit))
	}
	if e.Kept != 0 {
		wait += fmt.Sprintf(", %s of that kept for jobs inside, which may need more than they reserved", of(e.Kept))
	}
	if e.Limit != 0 && e.Wait.Ahead == 0 && e.Requested <= e.Remaining-min(e.Remaining, e.Kept) {
		wait += "; the room came only as the wait ended"
	}
	wait += holdersText(of, e.Holders, e.MoreHolders, e.MoreBytes)
	return fmt.Sprintf("a request of %s for %s: %s: %v", of(e.Requested), legible.Value(e.Tag.OrUntagged()), wait,
		e.Err)
}

// Unwrap is why the wait ended.
func (e *WaitError) Unwrap() error { return e.Err }

// DriverError is a failed driver call.
type DriverError struct {
	// Op is the driver entry point, such as "cuMemAllocAsync".
	Op string
	// Code, Name and Text are the driver's, such as 2,
	// "CUDA_ERROR_OUT_OF_MEMORY" and "out of memory".
	Code int
	Name string
	Text string
	// Sticky is true if the context is lost and every later call will fail.
	Sticky bool
	// OutOfMemory is true only if the driver certainly ran out of memory.
	OutOfMemory bool
	// Closed is true if the device was closed, or its driver shuts down.
	Closed bool
	// Detail is what the runtime adds: what it was doing, what it did about
	// the failure. May be empty.
	Detail string
	// Faulted is the launch whose work lost the context, nil if the driver does not know. Only the
	// simulated device does.
	Faulted *UseRecord
}

// Error names operation, code, name and text.
func (e *DriverError) Error() string {
	s := fmt.Sprintf("driver error: %s: %s (%d): %s", e.Op, e.Name, e.Code, e.Text)
	if e.Detail != "" {
		s += "; " + e.Detail
	}
	return s
}

// Is matches [ErrDriver], and [ErrOutOfMemory], [ErrSticky] or [ErrClosed] where
// it holds.
func (e *DriverError) Is(target error) bool {
	return target == ErrDriver ||
		target == ErrOutOfMemory && e.OutOfMemory ||
		target == ErrSticky && e.Sticky ||
		target == ErrClosed && e.Closed
}

// StreamMisuseError is a violation of the stream-ordered contract by the
// caller: a late use, an unknown or released stream, a conflicting open
// intent, a ticket ended twice, an operation that the resource cannot do.
type StreamMisuseError struct {
	// Op is the operation that refused, such as "PrepareUse".
	Op string
	// Reason says what was wrong and what to do.
	Reason string
	// Block is the block concerned; its Generation is zero if there is none.
	Block BlockID
	// Stream is the stream that the operation named.
	Stream StreamID
	// Holder is the launch whose open intent conflicts, if that is the reason: its
	// name, stream and access.
	Holder *UseRecord
	// Unleased is true if Stream is no lease: it was given back, or never was.
	Unleased bool
	// Unsupported is true if the resource cannot do the operation at all; the error
	// then also matches errors.ErrUnsupported. False safety is worse than none, so no
	// resource answers such a call with success.
	Unsupported bool
	// Capturing is true if the reason is that the stream, or one that it
	// synchronises with, captures. The operation can be repeated afterwards.
	Capturing bool
}

// Error says what was violated.
func (e *StreamMisuseError) Error() string {
	s := "stream misuse: " + e.Op + ": " + e.Reason
	if e.Block.Generation != 0 {
		s += fmt.Sprintf(" (block %v, stream %v)", e.Block, e.Stream)
	}
	if h := e.Holder; h != nil {
		s += fmt.Sprintf(" (held by launch %s on stream %v for %v)", legible.Value(h.Launch), h.Stream, h.Access)
	}
	return s
}

// Is matches [ErrStreamMisuse], and errors.ErrUnsupported where it holds.
func (e *StreamMisuseError) Is(target error) bool {
	return target == ErrStreamMisuse || target == errors.ErrUnsupported && e.Unsupported
}

// UseAfterFreeError is an operation on a block that is not live: freed twice,
// used after its free, or named by a stale or invented handle.
type UseAfterFreeError struct {
	Op         string
	Generation Generation
	Block      BlockID
	// State is the block's state as far as it is still known.
	State BlockState
	// Tag is the tag of the block, if it is still known.
	Tag Tag
}

// Error names the operation, the generation and the state.
func (e *UseAfterFreeError) Error() string {
	s := fmt.Sprintf("use after free: %s: generation %s is %s", e.Op, e.Generation, e.State)
	if e.Tag != "" {
		s += fmt.Sprintf(" (tag %s)", legible.Value(e.Tag))
	}
	return s
}

// Is matches [ErrUseAfterFree].
func (e *UseAfterFreeError) Is(target error) bool { return target == ErrUseAfterFree }

// OutOfBoundsError is a changed byte outside a block's bounds.
type OutOfBoundsError struct {
	Op         string
	Generation Generation
	Tag        Tag
	// Offset is that of the first changed byte relative to the caller's
	// pointer: negative before the block, at least Requested behind it.
	Offset int64
}

// Error names the victim and the first bad byte.
func (e *OutOfBoundsError) Error() string {
	return fmt.Sprintf("out of bounds: %s: generation %s (tag %s) was overwritten at offset %d", e.Op, e.Generation,
		legible.Value(e.Tag.OrUntagged()), e.Offset)
}

// Is matches [ErrOutOfBounds].
func (e *OutOfBoundsError) Is(target error) bool { return target == ErrOutOfBounds }

// InvalidRequestError is a request that no resource could serve.
type InvalidRequestError struct {
	Op     string
	Field  string
	Reason string
}

// Error names the field and says what to do.
func (e *InvalidRequestError) Error() string {
	return fmt.Sprintf("invalid request: %s: %s: %s", e.Op, e.Field, legible.Text(e.Reason))
}

// Is matches [ErrInvalidRequest].
func (e *InvalidRequestError) Is(target error) bool { return target == ErrInvalidRequest }

// notEnqueued marks an error of a launch function.
type notEnqueued struct{ err error }

func (e *notEnqueued) Error() string { return e.err.Error() }
func (e *notEnqueued) Unwrap() error { return e.err }

// NotEnqueued marks err as returned before any work was enqueued on the
// device: [Runtime.Launch] then aborts the launch instead of finishing it. A
// nil err stays nil.
func NotEnqueued(err error) error {
	if err == nil {
		return nil
	}
	return &notEnqueued{err}
}

// WasNotEnqueued reports whether err is marked by [NotEnqueued].
func WasNotEnqueued(err error) bool {
	_, marked := errors.AsType[*notEnqueued](err)
	return marked
}

// missing is the error of a call that was given nil where it needs something: an
// [InvalidRequestError] that names the argument and says what to give.
func missing(op, field, advice string) error {
	return &InvalidRequestError{Op: op, Field: field, Reason: "nil: " + advice}
}

// missingRuntime is the error of a call on no runtime at all.
func missingRuntime(op string) error {
	return missing(op, "runtime", "open a runtime, and look at the error of opening it")
}

func missingRecorder(op string) error {
	return missing(op, "recorder", "make one with NewStrictRecorder or NewPermissiveRecorder")
}
