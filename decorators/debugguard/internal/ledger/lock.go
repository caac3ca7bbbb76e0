package ledger

import (
	"runtime"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/blocktable"
)

// The lock of a record is a bit of its word, so that to lock it and to see that it still
// is the block's is one step, and to close it, which empties the word, another one. It is
// held for a few fields, and for a stack at most: a caller that meets it lets others run and
// looks again.
const (
	// stateMask is where a word has the state, less Live.
	stateMask = 1<<(blocktable.StateBits-1) - 1
	locked    = 1 << (blocktable.StateBits - 1)
)

func wordOf(g core.Generation, s core.BlockState) uint64 {
	return blocktable.Word(g, uint64(s-core.Live))
}

// Lock locks the record of the block of generation g, and reports false if it is of
// another one by now, or of none.
func (rec *Record) Lock(g core.Generation) bool {
	live := wordOf(g, core.Live) // most are, and not locked
	return rec.word.CompareAndSwap(live, live|locked) || rec.swap(g, locked, 0)
}

// LockGuarded locks the record of a guarded block, which is of that block for good.
func (rec *Record) LockGuarded() { rec.Lock(rec.Generation()) }

// Unlock ends what Lock began. Of a tombstone, which has no lock, it does nothing.
func (rec *Record) Unlock() { rec.word.And(^uint64(locked)) }

// empty makes the record one of no block, once its lock is free; it was of
// generation g. A search for that block locks it no more.
func (rec *Record) empty(g core.Generation) { rec.swap(g, 0, ^uint64(0)) }

// swap sets and clears bits of the word of generation g as soon as the lock is free.
// It reports false if the record is of another generation.
func (rec *Record) swap(g core.Generation, set, unset uint64) bool {
	for {
		word := rec.word.Load()
		switch {
		case word>>blocktable.StateBits != uint64(g):
			return false
		case word&locked != 0:
			runtime.Gosched()
		case rec.word.CompareAndSwap(word, word&^unset|set):
			return true
		}
	}
}
