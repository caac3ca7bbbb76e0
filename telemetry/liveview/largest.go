package liveview

import (
	"cmp"
	"slices"

	"github.com/fencepost-gpu/fencepost/core"
)

// largest keeps the n largest blocks that it is shown, and now and then as many more
// that are not.
type largest struct {
	n    int
	kept []core.BlockInfo
	// least is the size of the smallest of the n, once they were told from others.
	least uint64
}

func (l *largest) show(info core.BlockInfo) {
	if info.Block.Bytes <= l.least {
		return
	}
	if l.kept = append(l.kept, info); len(l.kept) == 2*l.n {
		l.least = l.bySize()[l.n-1].Block.Bytes
	}
}

// byAddress is what was kept, lowest address first.
func (l *largest) byAddress() []core.BlockInfo {
	return slices.SortedFunc(slices.Values(l.bySize()), func(a, b core.BlockInfo) int { return cmp.Compare(a.Block.ID.Ptr, b.Block.ID.Ptr) })
}

// bySize is what was kept, largest first.
func (l *largest) bySize() []core.BlockInfo {
	slices.SortFunc(l.kept, func(a, b core.BlockInfo) int {
		return cmp.Or(cmp.Compare(b.Block.Bytes, a.Block.Bytes), cmp.Compare(a.Block.ID.Ptr, b.Block.ID.Ptr))
	})
	l.kept = slices.Delete(l.kept, min(len(l.kept), l.n), len(l.kept))
	return l.kept
}
