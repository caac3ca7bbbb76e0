package sim

import (
	"sync"
	"sync/atomic"
)

// pageBytes is how much of a granule is scrambled at a time: a page of the
// machine's, or several.
const pageBytes = 4096

// granule is what is known of a granule of an arena that is backed. Memory that
// held something before is scrambled, so that what a program reads without having
// written it has no meaning; but where it is touched and not before, as memory
// that is not touched takes none of the machine's.
type granule struct {
	pattern uint64
	// stale has a bit for each page that is yet to be scrambled, which is cleared
	// when that is done; left counts them.
	stale [Granule / pageBytes / 64]atomic.Uint64
	mu    sync.Mutex
	left  int
}

// settled is every granule of which nothing is to be scrambled.
var settled granule

// exposeStale lets accesses at granules that are backed and held something before.
func (a *arena) exposeStale(ptr, n, pattern uint64) {
	exposed := a.granules(ptr, n)
	for i := range exposed {
		g := &granule{pattern: pattern, left: int(Granule / pageBytes)}
		for w := range g.stale {
			g.stale[w].Store(^uint64(0))
		}
		exposed[i].Store(g)
	}
}

// reach is the memory at [ptr, ptr+n) to be touched; ok is false if not all of it
// is backed.
func (a *arena) reach(ptr, n uint64) (b []byte, ok bool) {
	if n == 0 || !a.contains(ptr, n) {
		return nil, false
	}
	touched, stale := a.granules(ptr, n), false
	for i := range touched {
		g := touched[i].Load()
		if g == nil {
			return nil, false
		}
		stale = stale || g != &settled
	}
	if stale {
		a.settle(ptr, n)
	}
	return a.bytes(ptr, n), true
}

// settle scrambles what is stale of [ptr, ptr+n).
func (a *arena) settle(ptr, n uint64) {
	touched := a.granules(ptr, n)
	for i := range touched {
		if g := touched[i].Load(); g != nil && g != &settled {
			base := ptr&^(Granule-1) + uint64(i)*Granule
			from, to := max(ptr, base)-base, min(ptr+n-base, Granule)
			if g.settle(a.bytes(base, Granule), from/pageBytes, (to-1)/pageBytes) {
				touched[i].CompareAndSwap(g, &settled)
			}
		}
	}
}

// settle scrambles the pages from first to last of b, and reports whether it
// scrambled the granule's last.
func (g *granule) settle(b []byte, first, last uint64) (done bool) {
	for page := first; page <= last; page++ {
		word, bit := &g.stale[page/64], uint64(1)<<(page%64)
		if word.Load()&bit == 0 {
			continue
		}
		func() {
			g.mu.Lock()
			defer g.mu.Unlock() // it faults where the memory was taken away meanwhile
			if word.Load()&bit == 0 {
				return
			}
			fillPattern(b[page*pageBytes:][:pageBytes], g.pattern)
			word.And(^bit)
			g.left--
			done = g.left == 0
		}()
	}
	return done
}
