package fit

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// counted is work that ranges are held behind, by references.
type counted struct{ refs int }

func (c *counted) Retain() { c.refs++ }

// heldModel is what each unit of some pages is: free, taken, held behind something, or not of the fit.
type heldModel struct {
	*testing.T
	rng   *rand.Rand
	fit   *Fit
	page  uint64
	units []any // a uint64 is the address of a block, nil is free
	works []*counted
}

const heldPages = 20

func newHeldModel(t *testing.T, seed, page uint64) *heldModel {
	m := &heldModel{T: t, rng: rand.New(rand.NewPCG(seed, 3)), fit: New(page), page: page,
		units: make([]any, heldPages*page/unit)}
	m.fit.Add(heldPages*page, heldPages*page, 0)
	return m
}

func (m *heldModel) at(ptr, bytes uint64) []any {
	first := heldPages * m.page / unit
	return m.units[ptr/unit-first : (ptr+bytes)/unit-first]
}

func fill(units []any, with any) {
	for i := range units {
		units[i] = with
	}
}

// release gives references up.
func release(behind []Behind) {
	for _, b := range behind {
		b.(*counted).refs--
	}
}

func (m *heldModel) step() {
	ptr := heldPages*m.page + uint64(m.rng.IntN(len(m.units)))*unit
	page := ptr / m.page * m.page
	n := min(uint64(1+m.rng.IntN(3))*m.page, 2*heldPages*m.page-page)
	switch m.rng.IntN(6) {
	case 0, 1:
		bytes := uint64(1+m.rng.IntN(9)) * unit
		if m.rng.IntN(4) == 0 {
			bytes = 1 + m.rng.Uint64N(2*m.page)
		}
		bytes = roundUp(bytes, unit)
		if got, ok := m.fit.Take(bytes); ok {
			for _, was := range m.at(got, bytes) {
				if was != nil {
					m.Fatalf("%d bytes at %#x are taken, and were %v", bytes, got, was)
				}
			}
			fill(m.at(got, bytes), got)
		} else {
			m.mayRefuse(bytes)
		}
	case 2, 3:
		block, ok := m.at(ptr, unit)[0].(uint64)
		if !ok {
			return
		}
		var is any
		if m.rng.IntN(2) == 0 {
			work := &counted{refs: 1}
			m.works, is = append(m.works, work), work
			if !m.fit.Hold(block, 1, work) {
				m.Fatalf("the block at %#x is not held", block)
			}
		} else if _, ok := m.fit.Give(block, 1); !ok {
			m.Fatalf("the block at %#x is not given", block)
		}
		for i, was := range m.units {
			if was == block {
				m.units[i] = is
			}
		}
	case 4:
		if work, ok := m.at(ptr, unit)[0].(*counted); ok {
			release(m.fit.Settle(2, func(h Held) bool { return h.Behind == work }))
			for i, was := range m.units {
				if was == work {
					m.units[i] = nil
				}
			}
		}
	case 5:
		want := true
		for _, was := range m.at(page, n) {
			_, held := was.(*counted)
			want = want && (was == nil || held)
		}
		gone, _, ok := m.fit.CutRow(page, n)
		if ok != want || !ok && gone != nil {
			m.Fatalf("%d bytes at %#x: cut %v, want %v", n, page, ok, want)
		}
		if !ok {
			return
		}
		if len(gone) > 0 && m.rng.IntN(2) == 0 {
			m.fit.AddHeld(page, n, 3, gone[0])
			fill(m.at(page, n), gone[0])
			release(gone[1:])
			return
		}
		release(gone)
		m.fit.Add(page, n, 3)
		fill(m.at(page, n), nil)
	}
}

// mayRefuse demands that a block that was refused is small, and no page is free, or is longer than
// what is free in a row: of all memory where no block is small, and else of each page and of wholly
// free pages. A small block finds all that is free after Squeeze.
func (m *heldModel) mayRefuse(bytes uint64) {
	inAll := m.longest(m.units)
	inPage, free, row := uint64(0), uint64(0), uint64(0)
	for page := range slices.Chunk(m.units, int(m.page/unit)) {
		n := m.longest(page)
		if row += m.page; n < m.page {
			row = 0
		}
		inPage, free = max(inPage, n), max(free, row)
	}
	switch {
	case m.fit.IsSmall(bytes):
		if free > 0 {
			m.Fatalf("%d bytes are refused, and a page is free", bytes)
		}
		m.fit.Squeeze()
		if inPage >= bytes && !m.fit.Has(bytes) {
			m.Fatalf("%d bytes are refused, and as much is free in a page", bytes)
		}
	case max(inPage, free) >= bytes, !m.fit.IsSmall(unit) && inAll >= bytes:
		m.Fatalf("%d bytes are refused", bytes)
	}
}

// longest is how many bytes are free in a row.
func (m *heldModel) longest(units []any) (longest uint64) {
	run := uint64(0)
	for _, was := range units {
		if run += unit; was != nil {
			run = 0
		}
		longest = max(longest, run)
	}
	return longest
}

// check compares what is held, and the pages that are free or held, with the model.
func (m *heldModel) check() {
	held := map[any]int{}
	for h := range m.fit.Held {
		for _, was := range m.at(h.Ptr, h.Bytes) {
			if was != h.Behind {
				m.Fatalf("%+v is held where %v is", h, was)
			}
		}
		held[h.Behind]++
	}
	open := uint64(0)
	for i := 0; i < len(m.units); i += int(m.page / unit) {
		all := true
		for _, was := range m.units[i : i+int(m.page/unit)] {
			_, isHeld := was.(*counted)
			all = all && (was == nil || isHeld)
			if isHeld && held[was] == 0 {
				m.Fatalf("%v is held no more", was)
			}
		}
		if all {
			open += m.page
		}
	}
	rows := uint64(0)
	m.fit.Rows(func(ptr, n, _ uint64, has bool) bool {
		rows += n
		some := false
		for _, was := range m.at(ptr, n) {
			_, is := was.(*counted)
			some = some || is
		}
		if some && !has {
			m.Fatalf("%d bytes at %#x have held ones", n, ptr)
		}
		return true
	})
	if rows != open {
		m.Fatalf("%d bytes of pages in rows, want %d", rows, open)
	}
	for _, work := range m.works {
		if work.refs != held[work] {
			m.Fatalf("%d references for %d ranges", work.refs, held[work])
		}
	}
	if free, used := m.fit.Bytes(); free+used != heldPages*m.page {
		m.Fatalf("%d bytes free and %d used of %d", free, used, heldPages*m.page)
	}
}

// Ranges that are held behind something are taken by nobody, merge with nothing, and are found as parts of rows of
// pages, whatever happens beside them, with small blocks and without.
func TestHeldRangesStayWhatTheyAre(t *testing.T) {
	for _, units := range []uint64{4, 64, 256} {
		for seed := range min(200, 4000/units) {
			m := newHeldModel(t, seed, units*unit)
			for range 300 {
				m.step()
				m.check()
				must.Do(t, m.fit.wrong())
			}
		}
	}
}
