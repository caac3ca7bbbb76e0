package cuda

import (
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
)

// blockMap is the blocks that were allocated on one physical stream, by
// generation. A map for each stream, and not one for all, keeps goroutines on
// different streams off each other's cache lines.
type blockMap struct {
	mu sync.Mutex
	m  map[core.Generation]*block
}

func (m *blockMap) load(g core.Generation) *block {
	m.mu.Lock()
	b := m.m[g]
	m.mu.Unlock()
	return b
}

func (m *blockMap) store(g core.Generation, b *block) {
	m.mu.Lock()
	if m.m == nil {
		m.m = map[core.Generation]*block{}
	}
	m.m[g] = b
	m.mu.Unlock()
}

func (m *blockMap) remove(g core.Generation) {
	m.mu.Lock()
	delete(m.m, g)
	m.mu.Unlock()
}

// all describes every block. A record leaves the map before it is recycled,
// so under the map's lock each is what it is listed as.
func (m *blockMap) all() []core.Block {
	m.mu.Lock()
	defer m.mu.Unlock()
	blocks := make([]core.Block, 0, len(m.m))
	for _, b := range m.m {
		b.mu.Lock()
		blocks = append(blocks, b.core)
		b.mu.Unlock()
	}
	return blocks
}

// lookup finds a block by its generation. The lease it was allocated under
// says where it is; if that was given back since, all streams are asked.
func (t *streamTable) lookup(id core.BlockID) *block {
	if s, ok := (*t.leases.Load())[id.AllocStream]; ok {
		if b := s.books.blocks.load(id.Generation); b != nil {
			return b
		}
	}
	for _, s := range t.streams() {
		if b := s.books.blocks.load(id.Generation); b != nil {
			return b
		}
	}
	return t.adopted.blocks.load(id.Generation)
}

// blocks lists the blocks of all streams.
func (t *streamTable) blocks() []core.Block {
	blocks := t.adopted.blocks.all()
	for _, s := range t.streams() {
		if s.books != &t.adopted {
			blocks = append(blocks, s.books.blocks.all()...)
		}
	}
	return blocks
}
