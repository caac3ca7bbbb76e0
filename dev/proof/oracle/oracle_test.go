package oracle

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// randomHistory is what an engine might have made that queues waits at random:
// right ones, wrong ones, and too few.
func randomHistory(rng *rand.Rand, nodes int) *History {
	const streams = 3
	h := New(streams)
	live := map[uint8]uint8{} // block to address
	var spare []uint8
	block, op := uint8(0), int16(0)
	for h.Len() < nodes {
		s := uint8(rng.IntN(streams))
		if h.Len() > 0 && rng.IntN(2) == 0 {
			h.Add(Node{Kind: Wait, Stream: s, Op: op, From: int32(rng.IntN(h.Len()))})
		}
		if h.Len() > 0 && rng.IntN(12) == 0 {
			h.Learn(int32(rng.IntN(h.Len())))
		}
		switch roll := rng.IntN(6); {
		case roll == 0 && block < 5 || len(live) == 0:
			addr := block
			if n := len(spare); n > 0 {
				addr, spare = spare[n-1], spare[:n-1]
			}
			h.Add(Node{Kind: Alloc, Stream: s, Op: op, Block: block, Cells: 1 << addr})
			live[block] = addr
			block++
		case roll == 1:
			for b, addr := range live {
				h.Add(Node{Kind: Free, Stream: s, Op: op, Block: b, Cells: 1 << addr, Lazy: rng.IntN(2) == 0})
				delete(live, b)
				spare = append(spare, addr)
				break
			}
		default:
			var reads, writes Set
			for b := range live {
				switch rng.IntN(3) {
				case 0:
					reads |= 1 << b
				case 1:
					writes |= 1 << b
				}
			}
			n := Node{Stream: s, Op: op, Reads: reads, Writes: writes, Aborted: rng.IntN(4) == 0}
			for _, n.Kind = range []Kind{Begin, Work, End} {
				if n.Kind == Begin || !n.Aborted {
					h.Add(n)
				}
			}
		}
		op++
	}
	return h
}

func seeded(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// edges are the predecessors of each node, without any closure. A wait that is
// skipped has only that of its stream.
func edges(h *History, skip int32, waits, demands bool) [][]int32 {
	all := make([][]int32, h.Len())
	last := map[uint8]int32{}
	for i, n := range h.Nodes() {
		at := int32(i)
		if prev, ok := last[n.Stream]; ok {
			all[at] = append(all[at], prev)
		}
		last[n.Stream] = at
		if waits && n.Kind == Wait && at != skip && n.From >= 0 {
			all[at] = append(all[at], n.From)
		}
		for _, l := range h.learned {
			if l.at <= at {
				all[at] = append(all[at], l.node)
			}
		}
	}
	if demands {
		for _, d := range h.demands {
			all[d.then] = append(all[d.then], d.first)
		}
		for _, d := range h.reuse.late {
			all[d.then] = append(all[d.then], d.first)
		}
	}
	return all
}

// reaches walks back from a node.
func reaches(all [][]int32, first, then int32) bool {
	seen := map[int32]bool{}
	var walk func(int32) bool
	walk = func(at int32) bool {
		for _, p := range all[at] {
			if p == first || !seen[p] && func() bool { seen[p] = true; return walk(p) }() {
				return true
			}
		}
		return false
	}
	return walk(then)
}

func TestOrderIsReachability(t *testing.T) {
	rng := seeded(t)
	histories := 300
	if testing.Short() {
		histories = 60
	}
	for range histories {
		h := randomHistory(rng, 5+rng.IntN(90))
		all := edges(h, -1, true, false)
		for then := range int32(h.Len()) {
			for first := range int32(h.Len()) {
				if got, want := h.Ordered(first, then), reaches(all, first, then); got != want {
					t.Fatalf("whether #%d comes after #%d is %v, a walk says %v\n%v", then, first, got, want, h)
				}
			}
		}
	}
}

// naive judges by walks alone.
func naive(h *History) (missed, redundant, extra, excused int) {
	missed = h.demand(false)
	actual := edges(h, -1, true, false)
	for _, d := range h.demands {
		if !reaches(actual, d.first, d.then) {
			missed++
		}
	}
	for i, n := range h.Nodes() {
		if n.Kind != Wait {
			continue
		}
		without, needed := edges(h, int32(i), true, false), false
		for _, d := range h.demands {
			needed = needed || reaches(actual, d.first, d.then) && !reaches(without, d.first, d.then)
		}
		if !needed {
			redundant++
		}
	}
	beyond := func() (n int) {
		must := edges(h, -1, false, true)
		for i, a := range h.Nodes() {
			for j, b := range h.Nodes() {
				if a.Kind == Work && (b.Kind == Work || b.Kind == Alloc || b.Kind == Free) && reaches(actual, int32(i), int32(j)) && !reaches(must, int32(i), int32(j)) {
					n++
				}
			}
		}
		return n
	}
	hard := beyond()
	h.demand(true)
	extra = beyond()
	return missed, redundant, extra, hard - extra
}

func TestJudgementIsThatOfWalks(t *testing.T) {
	rng := seeded(t)
	found := [4]int{}
	for range 4000 {
		h := randomHistory(rng, 4+rng.IntN(24))
		h.FreesWait = true // walks know nothing of that
		missed, redundant, extra, excused := naive(h)
		v := h.Judge()
		if v.Missed != missed || v.Redundant+v.Excused != redundant+excused || v.Extra != extra {
			t.Fatalf("judged %+v, walks say missed %d, redundant %d, extra %d, excused %d\n%v", v, missed, redundant, extra, excused, h)
		}
		for i, n := range []int{missed, redundant, extra, excused} {
			found[i] += min(n, 1)
		}
	}
	for i, n := range found {
		if n < 20 {
			t.Errorf("only %d histories had the %d. kind of fault", n, i)
		}
	}
}

// allOrders runs a history in every order that its edges allow, and returns
// how many differ by more than the exchange of neighbours that do not clash,
// and in how many of all something was wrong.
func allOrders(h *History) (classes, wrong int) {
	x := &h.explorer
	x.h = h
	x.findPlaces()
	x.findClashes()
	x.expect()
	before := edges(h, -1, true, false)
	seen := map[string]bool{}
	var order []int32
	done := map[int32]bool{}
	var extend func(m memory, well bool)
	extend = func(m memory, well bool) {
		if len(order) == h.Len() {
			seen[normalForm(x, order)] = true
			if !well {
				wrong++
			}
			return
		}
		for at := range int32(h.Len()) {
			ready := !done[at]
			for _, p := range before[at] {
				ready = ready && done[p]
			}
			if !ready {
				continue
			}
			next := m
			fine := x.step(&next, at)
			done[at] = true
			order = append(order, at)
			extend(next, well && fine)
			order = order[:len(order)-1]
			done[at] = false
		}
	}
	extend(newMemory(), true)
	return len(seen), wrong
}

// normalForm names an order by which of each two clashing nodes comes first.
func normalForm(x *explorer, order []int32) string {
	var b strings.Builder
	for i := range order {
		for j := range i {
			if x.clash.has(order[i], order[j]) {
				fmt.Fprintf(&b, "%d<%d ", order[j], order[i])
			}
		}
	}
	words := strings.Fields(b.String())
	sortWords(words)
	return strings.Join(words, " ")
}

func sortWords(words []string) {
	for i := range words {
		for j := i; j > 0 && words[j] < words[j-1]; j-- {
			words[j], words[j-1] = words[j-1], words[j]
		}
	}
}

func TestExploringFindsWhatAllOrdersFind(t *testing.T) {
	rng := seeded(t)
	spoilt, fine := 0, 0
	for range 1500 {
		h := randomHistory(rng, 4+rng.IntN(6))
		if h.Len() > 12 {
			continue
		}
		classes, bad := allOrders(h)
		schedules, wrong := h.explore()
		if (wrong > 0) != (bad > 0) {
			t.Fatalf("exploring finds %d wrong orders, trying all of them %d\n%v", wrong, bad, h)
		}
		if wrong == 0 && schedules != classes {
			t.Fatalf("%d orders were run, %d differ\n%v", schedules, classes, h)
		}
		if wrong > 0 {
			spoilt++
		} else {
			fine++
		}
	}
	if spoilt < 100 || fine < 100 {
		t.Errorf("%d histories were spoilt, %d were fine", spoilt, fine)
	}
}
