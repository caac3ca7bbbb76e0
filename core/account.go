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

// Account follows the live bytes of those blocks that were allocated for it ([Request.Account]),
// whichever goroutine or stream frees them. Others' blocks cost nothing, and one account shares no
// memory with another. It needs no closing. All methods are safe for concurrent use, and
// do not block.
type Account struct {
	began monotime.Instant

	mu    sync.Mutex
	level level.Level
	peak  level.Amount
}

// NewAccount returns an account whose stretch begins now.
func NewAccount() *Account { return &Account{began: monotime.Now()} }

// Change is for backends, which call it when a block of the account becomes live, with its
// sizes, and when its owner gives it back, with the same sizes negative.
func (a *Account) Change(requested, bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.level.Change(monotime.Now(), level.Amount{Requested: requested, Bytes: bytes})
	a.peak = level.Amount{Requested: max(a.peak.Requested, a.level.Now.Requested), Bytes: max(a.peak.Bytes, a.level.Now.Bytes)}
}

// Peak is that from the account's beginning until now. It makes no device call. That of a
// nil account is zero.
func (a *Account) Peak() Peak {
	if a == nil {
		return Peak{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := monotime.Now()
	requested, bytes := a.level.AreasAt(now).Seconds()
	return Peak{Requested: uint64(a.peak.Requested), Bytes: uint64(a.peak.Bytes), RequestedSeconds: requested, ByteSeconds: bytes, Elapsed: now.Since(a.began)}
}
