package fit

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// smallPage is the size of pages where what counts is that blocks meet their borders.
const smallPage = 16 * unit

// pair is a fit beside its model: after each step both say the same.
type pair struct {
	fit   *Fit
	model model
	clock uint64
	has   map[uint64]bool // the pages, by number
}

func newPair() *pair {
	return &pair{fit: New(smallPage), model: model{page: smallPage}, has: map[uint64]bool{}}
}

func (p *pair) mark() uint64 { p.clock++; return p.clock }

// step makes one of the calls, with arguments by two numbers.
func (p *pair) step(call, a, b uint64) error {
	switch call % 10 {
	case 0:
		p.add(1+a%40, 1+b%6)
	case 1, 2:
		return p.take(a % (4 * smallPage))
	case 3:
		return p.take(a % (20 * unit))
	case 4, 5:
		if blocks := p.model.blocks(); len(blocks) > 0 {
			return p.give(blocks[a%uint64(len(blocks))])
		}
		return p.give(a)
	case 6:
		return p.give(a % 50 * smallPage / 2)
	case 7:
		return p.cut(a%(4*smallPage), p.clock-min(p.clock, b%20))
	case 8:
		return p.cutAt(1+a%46, 1+b%3, p.clock-min(p.clock, b%20))
	default:
		if a%8 == 0 {
			mark := p.mark()
			p.fit.Mark(mark)
			p.model.Mark(mark)
		}
	}
	return nil
}

// add adds pages in a row, unless the fit has one of them.
func (p *pair) add(first, n uint64) {
	for i := first; i < first+n; i++ {
		if p.has[i] {
			return
		}
	}
	for i := first; i < first+n; i++ {
		p.has[i] = true
	}
	mark := p.mark()
	p.fit.Add(first*smallPage, n*smallPage, mark)
	p.model.Add(first*smallPage, n*smallPage, mark)
}

func (p *pair) take(bytes uint64) error {
	rounded := roundUp(max(bytes, 1), unit)
	largest := p.model.Largest()
	ptr, ok := p.fit.Take(bytes)
	if ok != (rounded <= largest) {
		return fmt.Errorf("Take(%d) answers %v, and %d are free in a row", bytes, ok, largest)
	}
	if !ok {
		return nil
	}
	if err := p.model.takeAt(ptr, rounded); err != nil {
		return fmt.Errorf("Take(%d): %w", bytes, err)
	}
	return nil
}

// give frees what is at an address, a block or not.
func (p *pair) give(ptr uint64) error {
	mark := p.mark()
	want, wantOK := p.model.Give(ptr, mark)
	if got, ok := p.fit.Give(ptr, mark); ok != wantOK || got != want {
		return fmt.Errorf("Give(%#x) = %d, %v, not %d, %v", ptr, got, ok, want, wantOK)
	}
	return nil
}

func (p *pair) cut(bytes, upTo uint64) error {
	covered := func(mark uint64) bool { return mark <= upTo }
	if upTo == p.clock {
		covered = nil
	}
	ptr, n, mark, ok := p.fit.Cut(bytes, covered)
	if covered == nil {
		covered = func(uint64) bool { return true }
	}
	smallest := model{page: smallPage, spans: slices.Clone(p.model.spans)}
	_, wantN, _, wantOK := smallest.Cut(bytes, covered)
	if ok != wantOK || n%smallPage != 0 || ok && n != wantN {
		return fmt.Errorf("Cut(%d) of marks up to %d answers %d, %v, not %d, %v", bytes, upTo, n, ok, wantN, wantOK)
	}
	if !ok {
		return nil
	}
	best, _ := p.model.smallest(func(s span) bool {
		from, to := s.pages(smallPage)
		return from < to && to-from >= n && covered(s.mark)
	})
	of, err := p.model.remove(ptr, n)
	if err != nil || ptr%smallPage != 0 || of.bytes != best.bytes || of.mark != mark || !covered(mark) {
		return fmt.Errorf("Cut(%d) of marks up to %d takes %d at %#x with mark %d out of %+v, the smallest is %+v: %w", bytes, upTo, n, ptr, mark, of, best, err)
	}
	for at := ptr; at < ptr+n; at += smallPage {
		delete(p.has, at/smallPage)
	}
	return nil
}

// cutAt cuts some pages, if they are of one free range with a mark that will do.
func (p *pair) cutAt(first, n, upTo uint64) error {
	ptr, bytes := first*smallPage, n*smallPage
	before := slices.Clone(p.model.spans)
	of, err := p.model.remove(ptr, bytes)
	want := err == nil && of.mark <= upTo
	if !want {
		p.model.spans = before
	}
	if got := p.fit.CutAt(ptr, bytes, func(mark uint64) bool { return mark <= upTo }); got != want {
		return fmt.Errorf("CutAt(%#x, %d) of marks up to %d answers %v, of %+v: %w", ptr, bytes, upTo, got, of, err)
	}
	for i := first; want && i < first+n; i++ {
		delete(p.has, i)
	}
	return nil
}

// beside looks what is free at both sides of each place where the memory begins or ends.
func (p *pair) beside() error {
	for at := uint64(0); at <= 50*smallPage; at += smallPage {
		var below, above uint64
		for _, s := range p.model.spans {
			if s.end() == at && !p.has[at/smallPage] && !s.used {
				below = s.bytes
			}
			if s.ptr == at && !p.has[at/smallPage-1] && !s.used {
				above = s.bytes
			}
		}
		if gotBelow, gotAbove := p.fit.Beside(at); gotBelow != below || gotAbove != above {
			return fmt.Errorf("beside %#x are %d and %d, not %d and %d", at, gotBelow, gotAbove, below, above)
		}
	}
	return nil
}

// check compares all that the fit says with the model, and looks at what is inside.
func (p *pair) check() error {
	var spans []span
	p.fit.All(func(ptr, bytes uint64, used bool, mark uint64) bool {
		spans = append(spans, span{ptr, bytes, used, mark})
		return true
	})
	if !slices.Equal(spans, p.model.spans) {
		return fmt.Errorf("the fit has\n%+v, the model\n%+v", spans, p.model.spans)
	}
	if err := p.beside(); err != nil {
		return err
	}
	free, used := p.fit.Bytes()
	if f, u := p.model.Bytes(); free != f || used != u {
		return fmt.Errorf("%d free and %d used, the model has %d and %d", free, used, f, u)
	}
	if got, want := p.fit.Largest(), p.model.Largest(); got != want {
		return fmt.Errorf("the largest has %d bytes, not %d", got, want)
	}
	var rows []span
	p.fit.Pages(func(ptr, n, mark uint64) bool {
		rows = append(rows, span{ptr, n, false, mark})
		return true
	})
	slices.SortFunc(rows, func(a, b span) int { return cmp.Compare(a.ptr, b.ptr) })
	if want := p.model.freePages(); !slices.Equal(rows, want) {
		return fmt.Errorf("free pages %v, not %v", rows, want)
	}
	return p.fit.wrong()
}

func TestAFitAgreesWithASimpleOneAfterEachStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPair()
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			err := p.step(rapid.Uint64Range(0, 9).Draw(t, "call"), rapid.Uint64Range(0, 1<<20).Draw(t, "a"), rapid.Uint64Range(0, 1<<10).Draw(t, "b"))
			if err == nil {
				err = p.check()
			}
			must.Do(t, err)
		}
	})
}

// FuzzFit makes a step of each five bytes.
func FuzzFit(f *testing.F) {
	f.Add([]byte("\x00\x01\x00\x05\x00\x01\xff\x00\x00\x00\x04\x00\x00\x00\x00"))
	f.Add([]byte("\x00\x01\x00\x05\x00\x00\x07\x00\x05\x00\x07\x00\x20\x00\x00\x01\x00\x10\x00\x00\x07\x00\x10\x03\x00"))
	f.Fuzz(func(t *testing.T, steps []byte) {
		p := newPair()
		for ; len(steps) >= 5; steps = steps[5:] {
			err := p.step(uint64(steps[0]), uint64(binary.LittleEndian.Uint16(steps[1:])), uint64(binary.LittleEndian.Uint16(steps[3:])))
			if err == nil {
				err = p.check()
			}
			must.Do(t, err)
		}
	})
}

// TestALongLifeEndsInOneRange is about many blocks, tables that grow, and all sizes.
func TestALongLifeEndsInOneRange(t *testing.T) {
	const seed = 17
	random := rand.New(rand.NewPCG(seed, 0))
	f := New(2 << 20)
	const pages = 1 << 15
	for _, i := range random.Perm(pages) { // runs grow together in any order
		f.Add(uint64(i+1)<<21, 2<<20, uint64(i))
	}
	size := func() uint64 { return 1 + random.Uint64N(1<<(6+random.UintN(22))) }
	var live []uint64
	for range 30000 {
		if len(live) > 0 && random.UintN(5) < 2 {
			at := random.IntN(len(live))
			if _, ok := f.Give(live[at], 0); !ok {
				t.Fatalf("seed %d: the block at %#x is not there", seed, live[at])
			}
			live[at], live = live[len(live)-1], live[:len(live)-1]
			continue
		}
		if ptr, ok := f.Take(size()); ok {
			live = append(live, ptr)
		}
	}
	if err := f.wrong(); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	for _, at := range random.Perm(len(live)) {
		f.Give(live[at], 0)
	}
	if got := f.Largest(); got != pages<<21 || len(f.edges) != 2 {
		t.Errorf("seed %d: the largest range has %d bytes, %d edges", seed, got, len(f.edges))
	}
	if _, used := f.Bytes(); used != 0 {
		t.Errorf("seed %d: %d bytes are used at the end", seed, used)
	}
}

func TestWhatFitsIsFoundBehindRangesThatAreSlightlyTooSmall(t *testing.T) {
	f := New(4096 * unit)
	f.Add(4096*unit, 4096*unit, 0)
	take := func(units uint64) uint64 {
		t.Helper()
		ptr, ok := f.Take(units * unit)
		if !ok {
			t.Fatalf("%d units of %d are not to be had", units, f.Largest()/unit)
		}
		return ptr
	}
	var free []uint64
	for _, units := range []uint64{1000, 999, 998} { // of one class
		free = append(free, take(units))
		take(200)
	}
	take(f.Largest() / unit)
	for _, ptr := range free { // the class has the newest first
		f.Give(ptr, 0)
	}
	if got := take(1000); got != free[0] {
		t.Errorf("1000 units at %#x, not where they are free", got)
	}
	if _, ok := f.Take(1000 * unit); ok {
		t.Error("1000 units where 999 are free")
	}
	take(999)
}

func TestCutLeavesTheLargerRestWithItsRange(t *testing.T) {
	const border = 10 * smallPage
	for name, c := range map[string]struct{ below, above, want uint64 }{ // units beside two free pages
		"none":          {0, 0, border + smallPage},
		"more above":    {3, 5, border},
		"more below":    {5, 3, border + smallPage},
		"nothing below": {0, 5, border},
		"nothing above": {5, 0, border + smallPage},
	} {
		f := New(smallPage)
		f.Add(border-smallPage, 4*smallPage, 0)
		for _, units := range []uint64{16 - c.below, c.below + 32 + c.above, 16 - c.above} {
			if units > 0 {
				f.Take(units * unit)
			}
		}
		f.Give(border-c.below*unit, 1)
		if ptr, n, _, ok := f.Cut(smallPage, nil); ptr != c.want || n != smallPage || !ok {
			t.Errorf("%s: %d bytes at %#x, %v, want %#x", name, n, ptr, ok, c.want)
		}
	}
}

func TestCutTakesTheSmallestRangeOfAClass(t *testing.T) {
	for _, order := range [][]uint64{{1001, 1000, 1002}, {1000, 1001, 1002}, {1002, 1001, 1000}} {
		f := New(unit)
		at := unit
		for _, units := range order {
			f.Add(at, units*unit, units)
			at += (units + 1) * unit
		}
		for _, covered := range []uint64{1000, 1001, 1002} {
			if _, _, mark, ok := f.Cut(999*unit, nil); mark != covered || !ok {
				t.Errorf("of %v units the %d were cut, %v, want %d", order, mark, ok, covered)
			}
		}
	}
}

// Small results stay while the columns around them come and go: they keep one page.
func TestSmallBlocksKeepFewPages(t *testing.T) {
	const page, pages = 1024 * unit, 64
	f := New(page)
	f.Add(page, pages*page, 0)
	var columns []uint64
	for range 20 {
		ptr, ok := f.Take(5*page/2 + 7*unit)
		if _, small := f.Take(3 * unit); !ok || !small {
			t.Fatal("there is room")
		}
		columns = append(columns, ptr)
	}
	for _, ptr := range columns {
		f.Give(ptr, 0)
	}
	free := uint64(0)
	f.Pages(func(_, n, _ uint64) bool {
		free += n
		return true
	})
	if free != (pages-1)*page {
		t.Errorf("%d of %d pages are free", free/page, pages)
	}
}

func TestSizesAtTheLimits(t *testing.T) {
	f := New(smallPage)
	if _, ok := f.Take(0); ok || f.Largest() != 0 {
		t.Error("an empty fit has memory")
	}
	if _, _, _, ok := f.Cut(0, nil); ok {
		t.Error("an empty fit has pages")
	}
	const much = math.MaxUint64 / smallPage * smallPage
	f.Add(0, much, 1)
	for _, bytes := range []uint64{math.MaxUint64, much + 1} {
		if _, ok := f.Take(bytes); ok {
			t.Errorf("%d bytes of %d", bytes, much)
		}
		if _, _, _, ok := f.Cut(bytes, nil); ok {
			t.Errorf("%d bytes of pages of %d", bytes, much)
		}
	}
	if ptr, ok := f.Take(much); !ok || ptr != 0 {
		t.Errorf("all: %#x, %v", ptr, ok)
	}
	if bytes, ok := f.Give(0, 2); bytes != much || !ok {
		t.Errorf("all given: %d, %v", bytes, ok)
	}
	if ptr, n, mark, ok := f.Cut(much-unit, nil); ptr != 0 || n != much || mark != 2 || !ok {
		t.Errorf("all cut: %#x, %d, %d, %v", ptr, n, mark, ok)
	}
	if err := f.wrong(); err != nil || len(f.edges) != 0 {
		t.Errorf("%d edges: %v", len(f.edges), err)
	}
	f.Add(smallPage, smallPage, 3)
	ptr, _ := f.Take(0)
	if bytes, ok := f.Give(ptr, 4); bytes != unit || !ok {
		t.Errorf("no bytes are %d", bytes)
	}
}

func TestListsEndWhenTheirReaderWantsNoMore(t *testing.T) {
	f := New(smallPage)
	f.Add(smallPage, smallPage, 0)
	f.Add(3*smallPage, smallPage, 0)
	all, pages := 0, 0
	f.All(func(uint64, uint64, bool, uint64) bool { all++; return false })
	f.Pages(func(uint64, uint64, uint64) bool { pages++; return false })
	if all != 1 || pages != 1 {
		t.Errorf("%d spans and %d rows of pages behind the end", all, pages)
	}
}

func TestTakeAndGiveAllocateNothing(t *testing.T) {
	f := New(2 << 20)
	f.Add(2<<20, 1<<30, 0)
	random := rand.New(rand.NewPCG(1, 1))
	live := make([]uint64, 1000)
	churn := func() {
		for i := range live {
			f.Give(live[i], 1)
			live[i], _ = f.Take(1 + random.Uint64N(1<<(6+random.UintN(12))))
		}
		for i := range live { // a comb, of the most ranges that there can be
			if i%2 == 0 {
				f.Give(live[i], 2)
				live[i] = 0
			}
		}
	}
	for range 20 {
		churn()
	}
	if n := testing.AllocsPerRun(100, churn); n != 0 {
		t.Errorf("%v allocations for %d pairs", n, len(live))
	}
}
