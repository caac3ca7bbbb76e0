package liveview

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/fencepost-gpu/fencepost/core"
)

// largest keeps the n largest blocks that it is shown, as a heap with the
// smallest of them on top.
type largest struct {
	n    int
	kept []core.BlockInfo
}

func (l *largest) Len() int           { return len(l.kept) }
func (l *largest) Less(i, j int) bool { return l.kept[i].Block.Bytes < l.kept[j].Block.Bytes }
func (l *largest) Swap(i, j int)      { l.kept[i], l.kept[j] = l.kept[j], l.kept[i] }
func (l *largest) Push(x any)         { l.kept = append(l.kept, x.(core.BlockInfo)) }

// Pop is heap's.
func (l *largest) Pop() any {
	last := l.kept[len(l.kept)-1]
	l.kept = l.kept[:len(l.kept)-1]
	return last
}

func (l *largest) show(info core.BlockInfo) {
	switch {
	case len(l.kept) < l.n:
		heap.Push(l, info)
	case info.Block.Bytes > l.kept[0].Block.Bytes:
		l.kept[0] = info
		heap.Fix(l, 0)
	}
}

// byAddress is what was kept, lowest address first.
func (l *largest) byAddress() []core.BlockInfo {
	slices.SortFunc(l.kept, func(a, b core.BlockInfo) int { return cmp.Compare(a.Block.ID.Ptr, b.Block.ID.Ptr) })
	return l.kept
}

// bySize is what was kept, largest first.
func (l *largest) bySize() []core.BlockInfo {
	slices.SortFunc(l.kept, func(a, b core.BlockInfo) int {
		return cmp.Or(cmp.Compare(b.Block.Bytes, a.Block.Bytes), cmp.Compare(a.Block.ID.Ptr, b.Block.ID.Ptr))
	})
	return l.kept
}
