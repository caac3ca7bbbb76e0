package debugguard

import (
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
)

// shards is how many parts the ledger has.
const shards = 64

// slab is how many records are made at a time: about 64 KiB of them.
const slab = 280

// shard is the blocks of some streams. Its lock is never held together with
// another's, and a record's is taken under it only where nothing waits.
type shard struct {
	mu    sync.Mutex
	table table
	// empty are records of no block, the one used last first.
	empty *record
	// live counts the records of the table, counted is set while they hold the
	// gate open.
	live    int
	counted bool
	inUse   bool
	// untilStack is how many bytes are allocated before the next block that
	// keeps its stacks.
	untilStack int64
	tombstones tombstones
	// index is nil until an address was asked for.
	index *addresses
	_     [56]byte // keeps neighbours on different cache lines
}

// makeRecords fills the list of empty records; s.mu must be held.
func (s *shard) makeRecords() *record {
	records := make([]record, slab)
	for i := range records[:slab-1] {
		records[i].neighbour = &records[i+1]
	}
	return &records[0]
}

// get returns the record of a block, nil if there is none. It is not locked:
// what it says is to be believed only if its generation still is the block's.
func (l *ledger) get(id core.BlockID) *record {
	if id.Generation == 0 { // what a record has that is being filled
		return nil
	}
	if rec := l.shard(id.AllocStream).table.load(id.Generation); rec != nil {
		return rec
	}
	return l.search(id)
}

// search looks for a record under the locks: first where it should be, then,
// because a caller may have made up the stream, everywhere.
func (l *ledger) search(id core.BlockID) *record {
	if rec := l.shard(id.AllocStream).find(id.Generation); rec != nil {
		return rec
	}
	return l.elsewhere(id)
}

// elsewhere is search of a block that is not where it should be.
func (l *ledger) elsewhere(id core.BlockID) *record {
	if uint64(id.Generation) <= l.unseen.Load() || id.Generation == core.NoBytes {
		return nil
	}
	for i := range l.shards {
		if rec := l.shards[i].find(id.Generation); rec != nil {
			return rec
		}
	}
	return nil
}

func (s *shard) find(g core.Generation) *record {
	if s.table.buckets.Load() == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.find(g)
}

// lock returns the record of a block, locked, or nil if there is none.
func (l *ledger) lock(id core.BlockID) *record {
	rec := l.get(id)
	if rec == nil {
		return nil
	}
	rec.mu.Lock()
	if rec.generation() != id.Generation { // released and reused meanwhile
		rec.mu.Unlock()
		return nil
	}
	return rec
}

// lockAny is lock, and of a freed block it returns what is remembered.
func (l *ledger) lockAny(id core.BlockID) *record {
	rec := l.lock(id)
	if rec != nil {
		return rec
	}
	if rec = l.tombstone(id); rec != nil {
		rec.mu.Lock()
	}
	return rec
}
