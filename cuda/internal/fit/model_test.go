package fit

import (
	"cmp"
	"fmt"
	"slices"
)

// span is a block or a free range.
type span struct {
	ptr, bytes uint64
	used       bool
	mark       uint64
}

func (s span) end() uint64 { return s.ptr + s.bytes }

func (s span) pages(page uint64) (from, to uint64) {
	return (s.ptr + page - 1) / page * page, s.end() / page * page
}

// model is a fit that is simple and slow: all spans in the order of their addresses. By
// itself it is best fit.
type model struct {
	page  uint64
	spans []span
}

func (m *model) insert(s span) (at int) {
	at, _ = slices.BinarySearchFunc(m.spans, s.ptr, func(o span, ptr uint64) int { return cmp.Compare(o.ptr, ptr) })
	m.spans = slices.Insert(m.spans, at, s)
	return at
}

func (m *model) Add(ptr, bytes, mark uint64) {
	at := m.insert(span{ptr, bytes, false, mark})
	for _, lo := range []int{at, at - 1} {
		if lo < 0 || lo+1 == len(m.spans) {
			continue
		}
		if a, b := m.spans[lo], m.spans[lo+1]; !a.used && !b.used && a.end() == b.ptr {
			m.spans = slices.Replace(m.spans, lo, lo+2, span{a.ptr, a.bytes + b.bytes, false, max(a.mark, b.mark)})
		}
	}
}

// remove takes bytes out of the free range that they are of, and returns what that was.
func (m *model) remove(ptr, bytes uint64) (of span, err error) {
	for i, s := range m.spans {
		if s.used || ptr < s.ptr || ptr+bytes > s.end() {
			continue
		}
		var rest []span
		if ptr > s.ptr {
			rest = append(rest, span{s.ptr, ptr - s.ptr, false, s.mark})
		}
		if ptr+bytes < s.end() {
			rest = append(rest, span{ptr + bytes, s.end() - ptr - bytes, false, s.mark})
		}
		m.spans = slices.Replace(m.spans, i, i+1, rest...)
		return s, nil
	}
	return span{}, fmt.Errorf("%d bytes at %#x are not free", bytes, ptr)
}

// takeAt takes the block that somebody else has chosen.
func (m *model) takeAt(ptr, bytes uint64) error {
	_, err := m.remove(ptr, bytes)
	m.insert(span{ptr, bytes, true, 0})
	return err
}

func (m *model) Take(bytes uint64) (uint64, bool) {
	bytes = roundUp(max(bytes, 1), unit)
	s, ok := m.smallest(func(s span) bool { return s.bytes >= bytes })
	return s.ptr, ok && m.takeAt(s.ptr, bytes) == nil
}

func (m *model) Give(ptr, mark uint64) (bytes uint64, ok bool) {
	for i, s := range m.spans {
		if s.used && s.ptr == ptr {
			m.spans = slices.Delete(m.spans, i, i+1)
			m.Add(ptr, s.bytes, mark)
			return s.bytes, true
		}
	}
	return 0, false
}

func (m *model) Cut(bytes uint64, covered func(uint64) bool) (ptr, n, mark uint64, ok bool) {
	n = roundUp(max(bytes, 1), m.page)
	s, ok := m.smallest(func(s span) bool {
		from, to := s.pages(m.page)
		return from < to && to-from >= n && covered(s.mark)
	})
	if !ok {
		return 0, 0, 0, false
	}
	from, to := s.pages(m.page)
	if ptr = to - n; from-s.ptr < s.end()-to {
		ptr = from
	}
	_, err := m.remove(ptr, n)
	return ptr, n, s.mark, err == nil
}

// smallest is the smallest free range of those that fit, the first if there are several.
func (m *model) smallest(fits func(span) bool) (best span, ok bool) {
	for _, s := range m.spans {
		if !s.used && (!ok || s.bytes < best.bytes) && fits(s) {
			best, ok = s, true
		}
	}
	return best, ok
}

func (m *model) Largest() (bytes uint64) {
	for _, s := range m.spans {
		if !s.used {
			bytes = max(bytes, s.bytes)
		}
	}
	return bytes
}

func (m *model) Bytes() (free, used uint64) {
	for _, s := range m.spans {
		if s.used {
			used += s.bytes
		} else {
			free += s.bytes
		}
	}
	return free, used
}

func (m *model) Mark(mark uint64) {
	for i := range m.spans {
		if !m.spans[i].used {
			m.spans[i].mark = mark
		}
	}
}

// freePages are the wholly free pages of each range, by address.
func (m *model) freePages() (rows []span) {
	for _, s := range m.spans {
		if from, to := s.pages(m.page); !s.used && from < to {
			rows = append(rows, span{from, to - from, false, s.mark})
		}
	}
	return rows
}

// blocks are the addresses of what is used.
func (m *model) blocks() (ptrs []uint64) {
	for _, s := range m.spans {
		if s.used {
			ptrs = append(ptrs, s.ptr)
		}
	}
	return ptrs
}
