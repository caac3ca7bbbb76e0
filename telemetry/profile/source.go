package profile

import (
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/telemetry/internal/blocks"
)

// Source is one device of a profile.
type Source struct {
	// Resource is the outermost layer of the device's stack, which lists its
	// blocks. Required.
	Resource core.Resource
	// Allocations counts what was ever allocated; nil leaves that out.
	Allocations *Allocations
}

// collect adds what the device holds now to t.
func (s Source) collect(t *table) {
	for b := range blocks.Of(s.Resource) {
		t.add(key{stack: t.stacks.intern(b.AllocStack), tag: b.Block.Tag.OrUntagged(), device: s.Resource.Ordinal(), stream: b.Block.ID.AllocStream, state: b.Block.State},
			values{inuseObjects: 1, inuseBytes: b.Block.Bytes})
	}
}

// comment says what the device's pool holds, of which the samples have what is in blocks.
// It is empty where there is no pool, and while that holds nothing.
func (s Source) comment() string {
	st := s.Resource.Stats()
	if st.Reserved == 0 {
		return ""
	}
	text := fmt.Sprintf("device %d: the pool holds %d bytes, and %d of them are cached: in no block, and so in no sample", s.Resource.Ordinal(), st.Reserved, st.Cached)
	if st.OwnPool.Present {
		text += fmt.Sprintf("; %d of those are fragmented", st.OwnPool.Fragmented)
	}
	return text
}
