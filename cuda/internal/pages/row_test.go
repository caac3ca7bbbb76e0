package pages

import (
	"math/rand/v2"
	"testing"
)

// Rows are tried with pages of 16 bytes, and blocks of so many units.
const (
	unit = 4
	page = 16
)

// random is parts of up to so many, some with gaps between them.
func random(rng *rand.Rand, n int) (parts []Part) {
	at := uint64(0)
	for range n {
		if rng.IntN(4) == 0 {
			at += page
		}
		p := Part{Ptr: at, Bytes: page * (1 + rng.Uint64N(3)), Kind: Kind(rng.IntN(5)), From: len(parts)}
		at = p.End()
		if p.Kind == Own { // neighbours of the same lane are one range, and only ends may be odd
			if last := len(parts) - 1; last >= 0 && parts[last].Kind == Own && parts[last].End() == p.Ptr {
				continue
			}
		}
		if p.Kind == Own || p.Kind == Held {
			switch rng.IntN(3) {
			case 0:
				p.Ptr += unit
				p.Bytes -= unit
			case 1:
				p.Bytes -= unit
			}
		}
		parts = append(parts, p)
	}
	return parts
}

// cheapest looks at every row: from each unit, to each page border or where it has the bytes.
func cheapest(parts []Part, bytes uint64) (least cost, ok bool) {
	end := parts[len(parts)-1].End()
	for from := uint64(0); from < end; from += unit {
		c, fits := priced(parts, from, from+bytes)
		if fits && (!ok || c.compare(least) < 0) {
			least, ok = c, true
		}
	}
	return least, ok
}

// priced is the cost of exactly some bytes.
func priced(parts []Part, from, to uint64) (c cost, ok bool) {
	covered, holes := uint64(0), 0
	for _, p := range parts {
		a, b := max(from, p.Ptr), min(to, p.End())
		if a >= b {
			continue
		}
		covered += b - a
		switch p.Kind {
		case Hole:
			holes++
			c.missing += (b+page-1)/page - a/page
		case Waited, Held:
			c.waits++
			c.of += p.Bytes
		case Covered:
			c.of += p.Bytes
		}
	}
	return c, covered == to-from && holes < 2
}

func TestNoRowIsCheaperThanTheBest(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 17))
	found, missing, several := 0, 0, 0
	for range 20_000 {
		parts := random(rng, 1+rng.IntN(8))
		if len(parts) == 0 {
			continue
		}
		bytes := unit * (1 + rng.Uint64N(24))
		got, ok := BestRow(parts, bytes, page)
		least, want := cheapest(parts, bytes)
		if ok != want {
			t.Fatalf("%d bytes of %+v: %+v, found: %v", bytes, parts, got, want)
		}
		if !ok {
			continue
		}
		c := verify(t, parts, got, bytes)
		if c.compare(least) != 0 {
			t.Fatalf("%d bytes of %+v: %+v costs %+v, not %+v", bytes, parts, got, c, least)
		}
		found++
		if c.missing > 0 {
			missing++
		}
		if len(got) > 2 {
			several++
		}
	}
	if found < 5000 || missing < 2000 || several < 500 {
		t.Errorf("%d rows, %d with missing pages, %d of more than two parts", found, missing, several)
	}
}

// verify demands that a row is pieces of parts in a row, and returns what it costs.
func verify(t *testing.T, parts []Part, r Row, bytes uint64) (c cost) {
	t.Helper()
	var sum uint64
	for i, p := range r {
		sum += p.Bytes
		inside := false
		for _, of := range parts {
			if p.Kind == of.Kind && p.From == of.From && p.Ptr >= of.Ptr && p.End() <= of.End() {
				inside = true
				if p.Kind == Waited || p.Kind == Held {
					c.waits++
				}
				if p.Kind == Waited || p.Kind == Held || p.Kind == Covered {
					c.of += of.Bytes
				}
			}
		}
		if p.Kind == Hole {
			c.missing += p.Bytes / page
		}
		if !inside || p.Kind != Own && p.Kind != Held && (p.Ptr%page != 0 || p.Bytes%page != 0) || i > 0 && r[i-1].End() != p.Ptr {
			t.Fatalf("%+v of %+v", r, parts)
		}
	}
	if sum < bytes {
		t.Fatalf("%+v has not %d bytes", r, bytes)
	}
	return c
}

func BenchmarkBestRow(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 17))
	parts := random(rng, 1000)
	for b.Loop() {
		BestRow(parts, 20*page, page)
	}
}
