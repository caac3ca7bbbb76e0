// Package genmap is a map keyed by block generation, sharded so that
// operations on different blocks do not meet on one lock.
package genmap

import (
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
)

const shards = 64

// Map is a sharded map from generation to V. The zero Map is ready to use. It
// is safe for concurrent use and must not be copied.
type Map[V any] struct {
	shards [shards]shard[V]
}

type shard[V any] struct {
	mu sync.Mutex
	m  map[core.Generation]V
	_  [48]byte // keeps the locks of neighbours on different cache lines
}

func (m *Map[V]) shard(g core.Generation) *shard[V] { return &m.shards[uint64(g)%shards] }

// Load returns the value of g.
func (m *Map[V]) Load(g core.Generation) (V, bool) {
	s := m.shard(g)
	s.mu.Lock()
	v, ok := s.m[g]
	s.mu.Unlock()
	return v, ok
}

// Store sets the value of g.
func (m *Map[V]) Store(g core.Generation, v V) {
	s := m.shard(g)
	s.mu.Lock()
	if s.m == nil {
		s.m = make(map[core.Generation]V)
	}
	s.m[g] = v
	s.mu.Unlock()
}

// Delete removes g and returns the value it had.
func (m *Map[V]) Delete(g core.Generation) (V, bool) {
	s := m.shard(g)
	s.mu.Lock()
	v, ok := s.m[g]
	delete(s.m, g)
	s.mu.Unlock()
	return v, ok
}

// Update calls change with the value of g, under the lock of its shard, and
// stores the result if keep is true, removes g otherwise. change must not
// call the map.
func (m *Map[V]) Update(g core.Generation, change func(v V, ok bool) (next V, keep bool)) {
	s := m.shard(g)
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.m[g]
	next, keep := change(v, ok)
	switch {
	case keep:
		if s.m == nil {
			s.m = make(map[core.Generation]V)
		}
		s.m[g] = next
	case ok:
		delete(s.m, g)
	}
}

// All calls yield for a snapshot of each shard in turn, with no lock held,
// until yield returns false.
func (m *Map[V]) All(yield func(core.Generation, V) bool) {
	type entry struct {
		g core.Generation
		v V
	}
	var entries []entry
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		entries = entries[:0]
		for g, v := range s.m {
			entries = append(entries, entry{g, v})
		}
		s.mu.Unlock()
		for _, e := range entries {
			if !yield(e.g, e.v) {
				return
			}
		}
	}
}

// Len is the number of entries.
func (m *Map[V]) Len() int {
	n := 0
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		n += len(s.m)
		s.mu.Unlock()
	}
	return n
}
