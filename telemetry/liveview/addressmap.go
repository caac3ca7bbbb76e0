package liveview

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// The bounds of an address map.
const (
	maxListed  = 2048
	maxCells   = 1024
	maxExtents = 256
)

// addressMap is where the blocks lie. The extents are the address space in use,
// without what is empty between them; offsets are bytes from the beginning of
// the first, as if they followed each other.
type addressMap struct {
	Serial uint64    `json:"serial"`
	At     time.Time `json:"at"`
	TookMS float64   `json:"took_ms"`
	Blocks uint64    `json:"blocks"`
	Bytes  uint64    `json:"bytes"`
	// Dated: the ages of the blocks are known.
	Dated   bool         `json:"dated"`
	Extents []jsonExtent `json:"extents"`
	Tags    []string     `json:"tags"`
	// Listed are the largest blocks, by address. The slices are as long as each
	// other.
	Listed listed `json:"listed"`
	Rest   rest   `json:"rest"`
}

type jsonExtent struct {
	From  string `json:"from"`
	Bytes uint64 `json:"bytes"`
}

type listed struct {
	Offset     []uint64 `json:"offset"`
	Bytes      []uint64 `json:"bytes"`
	State      []int    `json:"state"`  // as in byState
	AgeMS      []int64  `json:"age_ms"` // -1 if it is not known
	Tag        []int    `json:"tag"`    // in Tags
	Generation []uint64 `json:"generation"`
}

// rest is all other blocks, summed up in cells of equal size. Cells has the
// number of a cell and its bytes by state; empty ones are left out.
type rest struct {
	Blocks    uint64      `json:"blocks"`
	Bytes     uint64      `json:"bytes"`
	CellBytes uint64      `json:"cell_bytes"`
	Cells     [][4]uint64 `json:"cells"`
}

// newAddressMap lists the blocks of a resource once and makes the map of what lies
// in a stretch, in the parts of all. Blocks at its ends are cut.
func newAddressMap(inspector core.Inspector, serial uint64, all *coverage, of stretch) *addressMap {
	m := emptyMap(serial, time.Now())
	top := &largest{n: maxListed}
	inspector.Blocks(func(info core.BlockInfo) bool {
		b, ok := of.cut(info.Block)
		if !ok {
			return true
		}
		info.Block = b
		m.Blocks++
		m.Bytes += b.Bytes
		m.Dated = m.Dated || !info.Allocated.IsZero()
		all.add(b)
		info.Uses, info.AllocStack = nil, nil // not kept for so many
		top.show(info)
		return true
	})
	extents := all.extents(maxExtents)
	m.list(top.byAddress(), all, extents)
	m.sum(all, extents)
	for _, e := range extents {
		m.Extents = append(m.Extents, jsonExtent{From: hex(e.first << all.shift), Bytes: e.n << all.shift})
	}
	m.TookMS = float64(time.Since(m.At)) / float64(time.Millisecond)
	return m
}

// emptyMap has no list that is null: the page goes through all of them.
func emptyMap(serial uint64, at time.Time) *addressMap {
	return &addressMap{Serial: serial, At: at, Extents: []jsonExtent{}, Tags: []string{}, Rest: rest{Cells: [][4]uint64{}},
		Listed: listed{Offset: []uint64{}, Bytes: []uint64{}, State: []int{}, AgeMS: []int64{}, Tag: []int{}, Generation: []uint64{}}}
}

// list puts the blocks into the map, and takes them out of what is summed up.
func (m *addressMap) list(blocks []core.BlockInfo, all *coverage, extents []extent) {
	tags := map[core.Tag]int{}
	for _, info := range blocks {
		b := info.Block
		all.remove(b)
		index, known := tags[b.Tag]
		if !known {
			index = len(m.Tags)
			tags[b.Tag] = index
			m.Tags = append(m.Tags, clip(string(b.Tag.OrUntagged()), maxTagText))
		}
		l := &m.Listed
		l.Offset = append(l.Offset, offset(b.ID.Ptr, all.shift, extents))
		l.Bytes = append(l.Bytes, b.Bytes)
		l.State = append(l.State, place(b.State))
		l.AgeMS = append(l.AgeMS, age(m.At, info.Allocated))
		l.Tag = append(l.Tag, index)
		l.Generation = append(l.Generation, uint64(b.ID.Generation))
	}
	m.Rest.Blocks = m.Blocks - uint64(len(blocks))
}

// offset is where an address that lies in an extent is on the map.
func offset(ptr uint64, shift uint, extents []extent) uint64 {
	part := ptr >> shift
	e := extents[sort.Search(len(extents), func(i int) bool { return part < extents[i].first+extents[i].n })]
	return (e.begin+part-e.first)<<shift + ptr&(1<<shift-1)
}

// sum puts what is not listed into cells.
func (m *addressMap) sum(all *coverage, extents []extent) {
	if len(extents) == 0 || m.Rest.Blocks == 0 {
		return
	}
	last := extents[len(extents)-1]
	per := (last.begin + last.n + maxCells - 1) / maxCells // parts in a cell
	m.Rest.CellBytes = per << all.shift
	for _, e := range extents {
		for part := e.first; part < e.first+e.n; part++ {
			bytes := all.parts[part]
			if bytes == nil || *bytes == (byState{}) {
				continue
			}
			m.addCell((e.begin+part-e.first)/per, *bytes)
		}
	}
}

// addCell adds to a cell; they come in order.
func (m *addressMap) addCell(cell uint64, bytes byState) {
	if n := len(m.Rest.Cells); n == 0 || m.Rest.Cells[n-1][0] != cell {
		m.Rest.Cells = append(m.Rest.Cells, [4]uint64{cell})
	}
	row := &m.Rest.Cells[len(m.Rest.Cells)-1]
	for i, n := range bytes {
		row[1+i] += n
		m.Rest.Bytes += n
	}
}

func hex(address uint64) string { return fmt.Sprintf("%#x", address) }

// age is in milliseconds, -1 if it is not known since when.
func age(now, since time.Time) int64 {
	if since.IsZero() {
		return -1
	}
	return max(now.Sub(since).Milliseconds(), 0)
}

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

// maxDetails is how many blocks are shown in detail at a time.
const maxDetails = 16

// blocksIn are the blocks that have an address in a stretch, the largest first, and
// how many there are.
func blocksIn(inspector core.Inspector, of stretch) object {
	top, total := &largest{n: maxDetails}, 0
	inspector.Blocks(func(info core.BlockInfo) bool {
		if ptr := info.Block.ID.Ptr; ptr < of.to && of.from < ptr+info.Block.Bytes {
			total++
			top.show(info)
		}
		return true
	})
	now, blocks := time.Now(), []object{}
	for _, info := range top.bySize() {
		blocks = append(blocks, blockOf(info, now))
	}
	return object{"total", total, "blocks", blocks}
}

func blockOf(info core.BlockInfo, now time.Time) object {
	b, uses := info.Block, []object{}
	for _, u := range info.Uses {
		uses = append(uses, object{"launch", clip(u.Launch, maxTagText), "id", u.LaunchID, "stream", uint64(u.Stream), "access", u.Access.String(), "age_ms", age(now, u.Time)})
	}
	return object{
		"ptr", hex(b.ID.Ptr), "generation", uint64(b.ID.Generation), "bytes", b.Bytes, "requested", b.Requested,
		"tag", clip(string(b.Tag.OrUntagged()), maxTagText), "state", stateNames[place(b.State)], "stream", uint64(b.ID.AllocStream),
		"age_ms", age(now, info.Allocated), "stack", frames(info.AllocStack), "uses", uses,
	}
}

// stateNames are the states as metrics call them, by their places.
var stateNames = [...]string{"live", "pending", "quarantined"}
