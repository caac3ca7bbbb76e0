package cuda

import (
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
)

// blockMap is the blocks that were allocated on one physical stream, by
// generation. A map for each stream, and not one for all, keeps goroutines on
// different streams off each other's cache lines.
//
// # The protocol
//
// It is a hash table of chains through the records themselves, changed under
// the lock of the books that it belongs to. It is read without: records are
// pooled, so a reader may be led astray by one that was recycled or moved
// meanwhile, but never out of records. What it finds must be compared again
// under the record's lock, and what it does not find must be looked for with
// [blockMap.find].
type blockMap struct {
	buckets atomic.Pointer[[]bucket]
	n       int
}

type bucket = atomic.Pointer[block]

const (
	firstBuckets = 64
	// strayLimit bounds how far a reader is led astray: chains are short.
	strayLimit = 16
)

// load finds a block without the lock. It may miss one.
func (m *blockMap) load(g core.Generation) *block {
	buckets := m.buckets.Load()
	if buckets == nil {
		return nil
	}
	b := chain(*buckets, g).Load()
	for range strayLimit {
		if b == nil || b.generation.Load() == uint64(g) {
			return b
		}
		b = b.next.Load()
	}
	return nil
}

// chain mixes the generation: streams that allocate in turn have generations
// at regular distances.
func chain(buckets []bucket, g core.Generation) *bucket {
	return &buckets[uint64(g)*0x9e3779b97f4a7c15>>32&uint64(len(buckets)-1)]
}

// find finds a block under the lock.
func (m *blockMap) find(g core.Generation) *block {
	if m.n == 0 {
		return nil
	}
	b := chain(*m.buckets.Load(), g).Load()
	for b != nil && b.generation.Load() != uint64(g) {
		b = b.next.Load()
	}
	return b
}

func (m *blockMap) insert(g core.Generation, b *block) {
	if buckets := m.buckets.Load(); buckets == nil || m.n == len(*buckets) {
		m.grow()
	}
	b.generation.Store(uint64(g))
	push(chain(*m.buckets.Load(), g), b)
	m.n++
}

func push(head *bucket, b *block) {
	if next := head.Load(); b.next.Load() != next {
		b.next.Store(next)
	}
	head.Store(b)
}

func (m *blockMap) grow() {
	next := make([]bucket, max(firstBuckets, 2*m.n))
	m.each(func(b *block) { push(chain(next, core.Generation(b.generation.Load())), b) })
	m.buckets.Store(&next)
}

func (m *blockMap) remove(g core.Generation) {
	at := chain(*m.buckets.Load(), g)
	for b := at.Load(); b != nil; b = at.Load() {
		if b.generation.Load() == uint64(g) {
			at.Store(b.next.Load())
			m.n--
			return
		}
		at = &b.next
	}
}

// each calls f, which may move the block to another chain, for every block.
func (m *blockMap) each(f func(*block)) { m.everyNth(0, 1, f) }

// chains is how many chains there are; it never falls.
func (m *blockMap) chains() int {
	if buckets := m.buckets.Load(); buckets != nil {
		return len(*buckets)
	}
	return 0
}

// everyNth is each for the blocks of every nth chain from first on.
func (m *blockMap) everyNth(first, n int, f func(*block)) {
	buckets := m.buckets.Load()
	if buckets == nil {
		return
	}
	for i := first; i < len(*buckets); i += n {
		for b := (*buckets)[i].Load(); b != nil; {
			next := b.next.Load()
			f(b)
			b = next
		}
	}
}

// lookup finds a block by its generation. The lease it was allocated under
// says where it is; if that was given back since, all streams are searched.
func (t *streamTable) lookup(id core.BlockID) *block {
	if s, ok := (*t.leases.Load())[id.AllocStream]; ok {
		if b := s.books.blocks.load(id.Generation); b != nil {
			return b
		}
	}
	for _, s := range t.streams() {
		if b := s.books.find(id.Generation); b != nil {
			return b
		}
	}
	return t.adoptedBooks.find(id.Generation)
}

// eachBooks calls f for the books of the streams, each once.
func (t *streamTable) eachBooks(streams []*stream, f func(*books)) {
	f(&t.adoptedBooks)
	for _, s := range streams {
		if !s.adopted {
			f(s.books)
		}
	}
}
