package level

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/internal/monotime"
)

// The oracle keeps every value since every moment.
func TestHighsAreTheMostSinceEachMoment(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	var h Highs
	var since [][]int64
	now := int64(0)
	for range 5000 {
		if rnd.IntN(3) == 0 {
			h.Begin(len(since), now)
			since = append(since, []int64{now})
		} else {
			now = max(0, now+rnd.Int64N(21)-10)
			h.Raise(now)
			for i := range since {
				since[i] = append(since[i], now)
			}
		}
		for range min(len(since), 4) {
			if i := rnd.IntN(len(since)); h.Since(i) != slices.Max(since[i]) {
				t.Fatalf("seed %d: since moment %d the most is %d, want %d", seed, i, h.Since(i), slices.Max(since[i]))
			}
		}
	}
}

func TestManyMomentsOfOneHighAreOneEntry(t *testing.T) {
	var h Highs
	for i := range 1000 {
		h.Begin(i, int64(1000-i))
	}
	if h.Raise(2000); len(h) != 1 {
		t.Errorf("%d entries for one high", len(h))
	}
}

func TestAnAreaIsExactBeyond64Bits(t *testing.T) {
	const tib = 1 << 40
	l := Level{}
	l.Change(0, Amount{tib, 2 * tib})
	l.Change(monotime.Instant(time.Hour), Amount{-tib + 1, -2 * tib})
	before := l.AreasAt(monotime.Instant(time.Hour))
	if requested, bytes := before.Seconds(); requested != 3600*tib || bytes != 7200*tib {
		t.Errorf("%g and %g byte-seconds", requested, bytes)
	}
	if requested, bytes := l.AreasAt(monotime.Instant(time.Hour + time.Second)).Minus(before).Seconds(); requested != 1 || bytes != 0 {
		t.Errorf("one byte for a second is %g byte-seconds, none are %g", requested, bytes)
	}
}

// Readings of two processors' clocks may be out of order.
func TestAreasNeverFall(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	var l Level
	last := 0.0
	for i := range 1000 {
		at := monotime.Instant(i*10 + rnd.IntN(50))
		l.Change(at, Amount{rnd.Int64N(100) - l.Now.Requested, 0})
		now, _ := l.AreasAt(at - monotime.Instant(rnd.IntN(50))).Seconds()
		if now < last || math.IsNaN(now) {
			t.Fatalf("seed %d: an area fell from %g to %g", seed, last, now)
		}
		last = now
	}
}
