package fit

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

const page = 16 * unit

// span is a block or a free range of the model.
type span struct {
	ptr, bytes, mark uint64
	used             bool
}

func (s span) end() uint64 { return s.ptr + s.bytes }

// model is a fit that is simple: what is there, in the order of addresses.
type model struct {
	spans []span
}

// add enters a span that is free, and merges it with free neighbours.
func (m *model) add(s span) {
	s.used = false
	i, _ := slices.BinarySearchFunc(m.spans, s.ptr, func(o span, ptr uint64) int { return int(int64(o.ptr - ptr)) })
	m.spans = slices.Insert(m.spans, i, s)
	if i+1 < len(m.spans) && !m.spans[i+1].used && m.spans[i].end() == m.spans[i+1].ptr {
		m.merge(i)
	}
	if i > 0 && !m.spans[i-1].used && m.spans[i-1].end() == m.spans[i].ptr {
		m.merge(i - 1)
	}
}

func (m *model) merge(i int) {
	lo, hi := &m.spans[i], m.spans[i+1]
	lo.bytes += hi.bytes
	lo.mark = max(lo.mark, hi.mark)
	m.spans = slices.Delete(m.spans, i+1, i+2)
}

// remove takes bytes out of the free range that has them, and returns its mark.
func (m *model) remove(ptr, bytes uint64) (mark uint64, err error) {
	for i, s := range m.spans {
		if s.used || ptr < s.ptr || ptr+bytes > s.end() {
			continue
		}
		var rest []span
		if ptr > s.ptr {
			rest = append(rest, span{s.ptr, ptr - s.ptr, s.mark, false})
		}
		if ptr+bytes < s.end() {
			rest = append(rest, span{ptr + bytes, s.end() - ptr - bytes, s.mark, false})
		}
		m.spans = slices.Replace(m.spans, i, i+1, rest...)
		return s.mark, nil
	}
	return 0, fmt.Errorf("%d bytes at %#x are not free", bytes, ptr)
}

func (m *model) enter(s span) {
	i, _ := slices.BinarySearchFunc(m.spans, s.ptr, func(o span, ptr uint64) int { return int(int64(o.ptr - ptr)) })
	m.spans = slices.Insert(m.spans, i, s)
}

func (m *model) largest() (bytes uint64) {
	for _, s := range m.spans {
		if !s.used {
			bytes = max(bytes, s.bytes)
		}
	}
	return bytes
}

func (m *model) sums() (free, used uint64) {
	for _, s := range m.spans {
		if s.used {
			used += s.bytes
		} else {
			free += s.bytes
		}
	}
	return free, used
}

// pages are the wholly free pages of the free ranges.
func (m *model) pages(covered func(uint64) bool) (rows []span) {
	for _, s := range m.spans {
		from, to := (s.ptr+page-1)/page*page, s.end()/page*page
		if !s.used && from < to && covered(s.mark) {
			rows = append(rows, span{from, to - from, s.mark, false})
		}
	}
	return rows
}

// pair is a fit beside its model.
type pair struct {
	fit   *Fit
	model model
	clock uint64
	pages map[uint64]bool // that the fit has, or had
}

func newPair() *pair { return &pair{fit: New(page), pages: map[uint64]bool{}} }

func (p *pair) mark() uint64 { p.clock++; return p.clock }

// grow adds a row of pages, unless the fit has some of them.
func (p *pair) grow(first, n uint64) error {
	for i := first; i < first+n; i++ {
		if p.pages[i] {
			return nil
		}
	}
	for i := first; i < first+n; i++ {
		p.pages[i] = true
	}
	mark := p.mark()
	p.fit.Add(first*page, n*page, mark)
	p.model.add(span{first * page, n * page, mark, false})
	return p.check()
}

func (p *pair) take(bytes uint64) error {
	rounded := (max(bytes, 1) + unit - 1) / unit * unit
	fits := p.model.largest() >= rounded
	ptr, ok := p.fit.Take(bytes)
	if ok != fits {
		return fmt.Errorf("Take(%d) answers %v, and %d are free in a row", bytes, ok, p.model.largest())
	}
	if ok {
		if _, err := p.model.remove(ptr, rounded); err != nil {
			return fmt.Errorf("Take(%d): %w", bytes, err)
		}
		p.model.enter(span{ptr, rounded, 0, true})
	}
	return p.check()
}

// give frees what is at ptr, a block or not.
func (p *pair) give(ptr uint64) error {
	var want uint64
	for i, s := range p.model.spans {
		if s.used && s.ptr == ptr {
			want = s.bytes
			p.model.spans = slices.Delete(p.model.spans, i, i+1)
			break
		}
	}
	mark := p.mark()
	got, ok := p.fit.Give(ptr, mark)
	if ok != (want > 0) || got != want {
		return fmt.Errorf("Give(%#x) = %d, %v: the block there has %d bytes", ptr, got, ok, want)
	}
	if ok {
		p.model.add(span{ptr, want, mark, false})
	}
	return p.check()
}

func (p *pair) cut(bytes, upTo uint64) error {
	need := (max(bytes, 1) + page - 1) / page * page
	covered := func(mark uint64) bool { return mark <= upTo }
	smallest := ^uint64(0) // of the ranges that have so many pages
	for _, row := range p.model.pages(covered) {
		if i := slices.IndexFunc(p.model.spans, func(s span) bool { return s.ptr <= row.ptr && row.ptr < s.end() }); row.bytes >= need {
			smallest = min(smallest, p.model.spans[i].bytes)
		}
	}
	ptr, n, mark, ok := p.fit.Cut(bytes, covered)
	if ok != (smallest != ^uint64(0)) {
		return fmt.Errorf("Cut(%d) answers %v; the smallest range with so much has %d", bytes, ok, smallest)
	}
	if !ok {
		return p.check()
	}
	if n != need || ptr%page != 0 || mark > upTo {
		return fmt.Errorf("Cut(%d) = %#x, %d, mark %d, where %d are covered", bytes, ptr, n, mark, upTo)
	}
	for _, s := range p.model.spans {
		if s.ptr <= ptr && ptr < s.end() && (s.bytes != smallest || s.mark != mark) {
			return fmt.Errorf("Cut(%d) from %d bytes with mark %d answers mark %d; the smallest range has %d", bytes, s.bytes, s.mark, mark, smallest)
		}
	}
	if _, err := p.model.remove(ptr, n); err != nil {
		return fmt.Errorf("Cut(%d): %w", bytes, err)
	}
	for at := ptr; at < ptr+n; at += page {
		delete(p.pages, at/page)
	}
	return p.check()
}

// check compares all that the fit says with the model, and looks at what is inside.
func (p *pair) check() error {
	var spans []span
	p.fit.All(func(ptr, bytes uint64, used bool, mark uint64) bool {
		spans = append(spans, span{ptr, bytes, mark, used})
		return true
	})
	if !slices.Equal(spans, p.model.spans) {
		return fmt.Errorf("the fit has\n%+v, the model\n%+v", spans, p.model.spans)
	}
	free, used := p.fit.Bytes()
	if f, u := p.model.sums(); free != f || used != u {
		return fmt.Errorf("%d free and %d used, the model has %d and %d", free, used, f, u)
	}
	if got, want := p.fit.Largest(), p.model.largest(); got != want {
		return fmt.Errorf("the largest has %d bytes, not %d", want, got)
	}
	rows := map[uint64]span{}
	p.fit.Pages(func(ptr, n, mark uint64) bool { rows[ptr] = span{ptr, n, mark, false}; return true })
	want := map[uint64]span{}
	for _, row := range p.model.pages(func(uint64) bool { return true }) {
		want[row.ptr] = row
	}
	if !maps.Equal(rows, want) {
		return fmt.Errorf("free pages %v, not %v", rows, want)
	}
	return p.fit.wrong()
}

// wrong finds what contradicts itself inside of a fit.
func (f *Fit) wrong() error {
	listed := map[*record]bool{}
	for row := range f.ranges.lists {
		if got, want := f.ranges.rows>>row&1 != 0, f.ranges.columns[row] != 0; got != want {
			return fmt.Errorf("the bit of row %d is %v", row, got)
		}
		for column, head := range f.ranges.lists[row] {
			if got, want := f.ranges.columns[row]>>column&1 != 0, head != nil; got != want {
				return fmt.Errorf("the bit of class %d,%d is %v", row, column, got)
			}
			for r, prev := head, (*record)(nil); r != nil; r, prev = r.next, r {
				if !r.free || r.prev != prev || classOf(r.bytes) != (class{row, column}) || listed[r] {
					return fmt.Errorf("%+v is in the list of class %d,%d behind %p", *r, row, column, prev)
				}
				listed[r] = true
			}
		}
	}
	blocks, ends := 0, 0
	for at, e := range f.edges {
		if e.ptr != at || !e.edge() || e.free || (e.above == nil) == (e.below == nil) {
			return fmt.Errorf("the edge at %#x is %+v", at, *e)
		}
		if e.above == nil {
			ends++
			continue
		}
		prev := e
		for r := e.above; ; prev, r = r, r.above {
			if r.below != prev || r.ptr != prev.end() || prev.free && r.free || r.free != listed[r] {
				return fmt.Errorf("%+v is above %+v, listed: %v", *r, *prev, listed[r])
			}
			delete(listed, r)
			if r.above == nil {
				break
			}
			if r.edge() || !r.free && (f.blocks.find(r.ptr) != r) {
				return fmt.Errorf("the table does not have %+v", *r)
			}
			if !r.free {
				blocks++
			}
		}
		if last := prev.above; !last.edge() || f.edges[last.ptr] != last {
			return fmt.Errorf("a run ends in %+v", *last)
		}
	}
	if len(listed) > 0 || blocks != f.blocks.n || 2*ends != len(f.edges) {
		return fmt.Errorf("%d ranges are in no run; %d blocks, the table counts %d; %d runs end, of %d edges", len(listed), blocks, f.blocks.n, ends, len(f.edges))
	}
	return nil
}

func (t *table) find(ptr uint64) *record {
	if t.n == 0 {
		return nil
	}
	for r := *t.chain(ptr); r != nil; r = r.next {
		if r.ptr == ptr {
			return r
		}
	}
	return nil
}

// step makes one of the calls, by three numbers.
func (p *pair) step(call, a, b uint64) error {
	switch call % 8 {
	case 0:
		return p.grow(1+a%40, 1+b%6)
	case 1, 2:
		return p.take(a % (4 * page))
	case 3:
		return p.take(a % (20 * unit))
	case 4, 5:
		var blocks []uint64
		for _, s := range p.model.spans {
			if s.used {
				blocks = append(blocks, s.ptr)
			}
		}
		if len(blocks) > 0 {
			return p.give(blocks[a%uint64(len(blocks))])
		}
		return p.give(a)
	case 6:
		return p.give(a % 50 * page / 2)
	default:
		return p.cut(a%(4*page), p.clock-min(p.clock, b%20))
	}
}

func TestAFitAgreesWithASimpleOneAfterEachStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPair()
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			call := rapid.Uint64Range(0, 7).Draw(t, "call")
			if err := p.step(call, rapid.Uint64Range(0, 1<<20).Draw(t, "a"), rapid.Uint64Range(0, 1<<10).Draw(t, "b")); err != nil {
				t.Fatal(err)
			}
		}
	})
}
