package profile

import (
	"github.com/fencepost-gpu/fencepost/core"
)

// Source is one device of a profile.
type Source struct {
	// Resource is the outermost layer of the device's stack, which lists its
	// blocks. Required.
	Resource core.Resource
	// Allocations counts what was ever allocated; nil leaves that out.
	Allocations *Allocations
}

// detail is what the outermost layer knows of a block better than the
// innermost.
type detail struct {
	stack *frames
	state core.BlockState
}

// collect adds what the device holds now to t. The outermost layer knows stacks and
// what the caller was told, the innermost what the device was asked for.
func (s Source) collect(t *table) {
	known := map[core.Generation]detail{}
	s.Resource.Inspect().Blocks(func(b core.BlockInfo) bool {
		stack := t.stacks.intern(b.AllocStack)
		if stack != nil || b.Block.State != core.Live {
			known[b.Block.ID.Generation] = detail{stack, b.Block.State}
		}
		return true
	})
	core.Base(s.Resource).Inspect().Blocks(func(b core.BlockInfo) bool {
		d, ok := known[b.Block.ID.Generation]
		if !ok || b.Block.State != core.Live {
			d.state = b.Block.State
		}
		t.add(key{stack: d.stack, tag: b.Block.Tag.OrUntagged(), device: s.Resource.Ordinal(), stream: b.Block.ID.AllocStream, state: d.state},
			values{inuseObjects: 1, inuseBytes: b.Block.Bytes})
		return true
	})
}
