package fit

import (
	"math/rand/v2"
	"testing"
)

// counted is work that ranges are held behind, by references.
type counted struct{ refs int }

func (c *counted) Retain() { c.refs++ }

// heldModel is what each unit of some pages is: free, taken, held behind something, or not of the fit.
type heldModel struct {
	*testing.T
	rng   *rand.Rand
	fit   *Fit
	units []any // a uint64 is the address of a block, nil is free
	works []*counted
}

const (
	heldPages = 8
	heldPage  = 4 * unit
)

func (m *heldModel) at(ptr, bytes uint64) []any {
	return m.units[ptr/unit-heldPages : (ptr+bytes)/unit-heldPages]
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
	ptr := uint64(heldPages+m.rng.IntN(len(m.units))) * unit
	page := ptr / heldPage * heldPage
	n := min(uint64(1+m.rng.IntN(3))*heldPage, (heldPages+uint64(len(m.units)))*unit-page)
	switch m.rng.IntN(6) {
	case 0, 1:
		bytes := uint64(1+m.rng.IntN(9)) * unit
		if got, ok := m.fit.Take(bytes); ok {
			for _, was := range m.at(got, bytes) {
				if was != nil {
					m.Fatalf("%d bytes at %#x are taken, and were %v", bytes, got, was)
				}
			}
			fill(m.at(got, bytes), got)
		} else if m.longest() >= int(bytes/unit) {
			m.Fatalf("%d bytes are refused", bytes)
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

func (m *heldModel) longest() (longest int) {
	run := 0
	for _, was := range m.units {
		if run++; was != nil {
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
	for i := 0; i < len(m.units); i += int(heldPage / unit) {
		all := true
		for _, was := range m.units[i : i+int(heldPage/unit)] {
			_, isHeld := was.(*counted)
			all = all && (was == nil || isHeld)
			if isHeld && held[was] == 0 {
				m.Fatalf("%v is held no more", was)
			}
		}
		if all {
			open += heldPage
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
	if free, used := m.fit.Bytes(); free+used != heldPages*heldPage {
		m.Fatalf("%d bytes free and %d used of %d", free, used, heldPages*heldPage)
	}
}

// Ranges that are held behind something are taken by nobody, merge with nothing, and are found as parts of rows of
// pages, whatever happens beside them.
func TestHeldRangesStayWhatTheyAre(t *testing.T) {
	for seed := range uint64(200) {
		m := &heldModel{T: t, rng: rand.New(rand.NewPCG(seed, 3)), fit: New(heldPage), units: make([]any, heldPages*heldPage/unit)}
		m.fit.Add(heldPages*unit, heldPages*heldPage, 0)
		for range 300 {
			m.step()
			m.check()
		}
	}
}
