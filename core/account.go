package core

import (
	"sync"
	"time"

	"github.com/fencepost-gpu/fencepost/internal/level"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
)

// Peak is what was live during a stretch of time: from when an owner was given a block until
// he gave it back, whatever the device or a guard still had to do with it.
type Peak struct {
	// Requested is the most bytes that were live at once as callers asked for them, Bytes as the
	// device is asked for them and a budget charges them: with padding and red zones. Each
	// is exact, and the two may be of different moments.
	Requested, Bytes uint64
	// RequestedSeconds and ByteSeconds are how many bytes were live for how long: the sum
	// over all blocks of bytes times seconds within the stretch. Clock readings may be off
	// by 10 µs.
	RequestedSeconds, ByteSeconds float64
	// Elapsed is how long the stretch was.
	Elapsed time.Duration
	// Tags is the same for each tag that had anything live in the stretch; nil for one
	// [Account]. The peaks of tags are of different moments: their sum may be above the whole.
	Tags map[Tag]Peak
}

// JobAccount is what a job has needed and waited for: see [Account.Read]. What was not told to the account is zero.
type JobAccount struct {
	// Peak is of the blocks that were allocated for the account; Elapsed ends with [Account.End].
	Peak
	// Allocated is all that was ever allocated, also what was freed since.
	Allocated Amount
	// Reserved is the bytes of the reservation, also after it was given back. UnusedByteSeconds is how many of them were
	// not live, as callers asked for them, for how long, from when they were reserved until they were given back.
	Reserved          uint64
	UnusedByteSeconds float64
	// Predicted is what was learned from earlier jobs that this one would need, in bytes as callers ask for them: the upper
	// end. 0 where too little was known.
	Predicted uint64
	// WaitedForMemory is how long a reservation and allocations waited for room, WaitedForStream how long the job
	// waited for its stream. A wait counts when it is over.
	WaitedForMemory, WaitedForStream time.Duration
	// WaitedOnDevice is how long the job's streams stood on the device behind other work than the job's own, by the
	// device's own times: of those of the job's Launches, with copies and what a guard launches, that were timed, which are TimedLaunches, and
	// of its allocations that were. Of a launch it is known some milliseconds after the device has done that.
	WaitedOnDevice          time.Duration
	Launches, TimedLaunches uint64
}

// Account follows the live bytes of those blocks that were allocated for it ([Request.Account]),
// whichever goroutine or stream frees them, and notes what a runtime says of a job. Others' blocks cost nothing, and one
// account shares no memory with another. It needs no closing. All methods are safe for concurrent use, and
// do not block.
type Account struct {
	began monotime.Instant

	mu    sync.Mutex
	level level.Level
	peak  level.Amount
	noted JobAccount
	// reserved: a reservation is open, since an instant at which there were these areas.
	reserved bool
	since    monotime.Instant
	before   level.Areas
	ended    bool
}

// NewAccount returns an account whose stretch begins now.
func NewAccount() *Account { return &Account{began: monotime.Now()} }

// Change is for backends, which call it when a block of the account becomes live, with its
// sizes, and when its owner gives it back, with the same sizes negative. allocated is set unless it was live before.
func (a *Account) Change(requested, bytes int64, allocated bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.level.Change(monotime.Now(), level.Amount{Requested: requested, Bytes: bytes})
	a.peak = level.Amount{Requested: max(a.peak.Requested, a.level.Now.Requested), Bytes: max(a.peak.Bytes, a.level.Now.Bytes)}
	if allocated {
		all := &a.noted.Allocated
		all.Requested, all.Bytes, all.Blocks = all.Requested+uint64(requested), all.Bytes+uint64(bytes), all.Blocks+1
	}
}

// Note is for runtimes: it lets change what the account says beside Peak, Allocated and Reserved. change must call nothing of the account.
func (a *Account) Note(change func(*JobAccount)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(&a.noted)
}

// Reserve is for runtimes: so many bytes are reserved from now on, until [Account.Unreserve] or [Account.End].
func (a *Account) Reserve(bytes uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.noted.Reserved, a.reserved, a.since = bytes, true, monotime.Now()
	a.before = a.level.AreasAt(a.since)
}

// HasReserved is for backends: whether there is or was a reservation. It is false of a nil Account.
// It is safe for concurrent use and does not block.
func (a *Account) HasReserved() bool {
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.noted.Reserved > 0
}

// Unreserve is for runtimes: the reservation was given back.
func (a *Account) Unreserve() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unreserve(monotime.Now())
}

func (a *Account) unreserve(now monotime.Instant) {
	a.noted.UnusedByteSeconds, a.reserved = a.unused(now), false
}

// End is for runtimes: the job is over, and its reservation was given back.
func (a *Account) End() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return
	}
	now := monotime.Now()
	a.unreserve(now)
	a.noted.Elapsed, a.ended = now.Since(a.began), true
}

// Live is how many bytes are live now, as callers asked for them.
func (a *Account) Live() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return uint64(a.level.Now.Requested)
}

// unused is what the open reservation comes to, or the last; a.mu must be held.
func (a *Account) unused(now monotime.Instant) float64 {
	if !a.reserved {
		return a.noted.UnusedByteSeconds
	}
	used, _ := a.level.AreasAt(now).Minus(a.before).Seconds()
	return max(0, float64(a.noted.Reserved)*now.Since(a.since).Seconds()-used)
}

// Peak is that from the account's beginning until now. It makes no device call. That of a
// nil account is zero.
func (a *Account) Peak() Peak { return a.Read().Peak }

// Read is all that the account knows, from its beginning until now. It makes no device call. That of a nil account is zero.
func (a *Account) Read() JobAccount {
	if a == nil {
		return JobAccount{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now, all := monotime.Now(), a.noted
	all.Requested, all.Bytes = uint64(a.peak.Requested), uint64(a.peak.Bytes)
	all.RequestedSeconds, all.ByteSeconds = a.level.AreasAt(now).Seconds()
	all.UnusedByteSeconds = a.unused(now)
	if !a.ended {
		all.Elapsed = now.Since(a.began)
	}
	return all
}
