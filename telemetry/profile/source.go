package profile

import (
	"github.com/fencepost-gpu/fencepost/core"
)

// Source is one device of a profile.
type Source struct {
	// Resource is the outermost layer of the device's stack. Required. Its
	// blocks are listed by the layers that are a [core.Inspector]; a stack
	// that has none is profiled by Holders.
	Resource core.Resource
	// Holders is what each tag holds by state, for a stack whose blocks
	// nobody lists; nil if there is no budget.
	Holders func() []core.Holder
	// Allocations counts what was ever allocated; nil leaves that out.
	Allocations *Allocations
}

// inspectors are the outermost and the innermost layer that list blocks. The
// outermost knows stacks and what the caller was told, the innermost what the
// device was asked for.
func (s Source) inspectors() (outer, inner core.Inspector) {
	for r := s.Resource; r != nil; r = r.Unwrap() {
		if i, ok := r.(core.Inspector); ok {
			if outer == nil {
				outer = i
			}
			inner = i
		}
	}
	return outer, inner
}

// detail is what the outermost layer knows of a block better than the
// innermost.
type detail struct {
	stack *frames
	state core.BlockState
}

// collect adds what the device holds now to t.
func (s Source) collect(t *table) {
	outer, inner := s.inspectors()
	if inner == nil {
		s.collectHolders(t)
		return
	}
	known := map[core.Generation]detail{}
	outer.Blocks(func(b core.BlockInfo) bool {
		stack := t.stacks.intern(b.AllocStack)
		if stack != nil || b.Block.State != core.Live {
			known[b.Block.ID.Generation] = detail{stack, b.Block.State}
		}
		return true
	})
	inner.Blocks(func(b core.BlockInfo) bool {
		d, ok := known[b.Block.ID.Generation]
		if !ok || b.Block.State != core.Live {
			d.state = b.Block.State
		}
		t.add(key{stack: d.stack, tag: b.Block.Tag.OrUntagged(), device: s.Resource.Ordinal(), stream: b.Block.ID.AllocStream, state: d.state},
			values{inuseObjects: 1, inuseBytes: b.Block.Bytes})
		return true
	})
}

func (s Source) collectHolders(t *table) {
	if s.Holders == nil {
		return
	}
	for _, h := range s.Holders() {
		t.add(key{tag: h.Tag.OrUntagged(), device: s.Resource.Ordinal(), noStream: true, state: h.State},
			values{inuseObjects: h.Blocks, inuseBytes: h.Bytes})
	}
}
