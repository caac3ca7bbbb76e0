package liveview

import (
	"slices"
	"sync"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// The bounds of maps of a stretch of addresses.
const (
	// minPartShift is of the smallest parts, in which allocators give out memory.
	minPartShift = 9
	// zoomParts is into how many parts a stretch is divided at most, and zoomsKept
	// how many maps are kept, for pages that look at different stretches.
	zoomParts = 1 << 12
	zoomsKept = 8
)

// stretch is from..to, to excluded.
type stretch struct{ from, to uint64 }

// everything is all addresses but the last.
var everything = stretch{0, ^uint64(0)}

// aligned is the stretch in whole parts, and their size: the finest that are not
// too many.
func (s stretch) aligned() (stretch, uint) {
	shift := uint(minPartShift)
	for (s.to-s.from)>>shift > zoomParts {
		shift++
	}
	part := uint64(1)<<shift - 1
	s.from &^= part
	if to := (s.to + part) &^ part; to > s.to { // the last part of all has no end
		s.to = to
	}
	return s, shift
}

// parts is the stretch in whole parts, with what covers it from end to end: a map is
// of the stretch, also where nothing is.
func (s stretch) parts() (stretch, *coverage) {
	s, shift := s.aligned()
	all := newCoverage(shift)
	all.parts[s.from>>shift], all.parts[(s.to-1)>>shift] = &byState{}, &byState{}
	return s, all
}

// cut is the part of a block that lies in the stretch.
func (s stretch) cut(b core.Block) (core.Block, bool) {
	from, to := max(b.ID.Ptr, s.from), min(b.ID.Ptr+b.Bytes, s.to)
	if from >= to {
		return b, false
	}
	b.ID.Ptr, b.Bytes = from, to-from
	return b, true
}

// zoomer makes maps of stretches of a device's addresses, at a finer resolution
// than that of everything. They take at most half of a processor in all: after each,
// the next one waits for as long as that took. A stretch that is requested again is
// mapped anew as often as everything is.
type zoomer struct {
	inspector core.Inspector

	mu     sync.Mutex
	rested time.Time
	serial uint64
	kept   []zoomed // the last asked for is last
}

type zoomed struct {
	of stretch
	*answer
}

// newest is the map of a stretch, nil if gone ends the wait for it: for other maps
// that are being made, and for the pause behind them.
func (z *zoomer) newest(of stretch, gone <-chan struct{}) *answer {
	z.mu.Lock()
	defer z.mu.Unlock()
	if i := slices.IndexFunc(z.kept, func(k zoomed) bool { return k.of == of }); i >= 0 {
		k := z.kept[i]
		z.kept = slices.Delete(z.kept, i, i+1)
		if k.fresh() {
			z.kept = append(z.kept, k)
			return k.answer
		}
	}
	select {
	case <-time.After(time.Until(z.rested)):
	case <-gone:
		return nil
	}
	began := time.Now()
	z.serial++
	whole, parts := of.parts()
	a := newAnswer(z.serial, mapInterval, newAddressMap(z.inspector, z.serial, parts, whole), began)
	ended := time.Now()
	z.rested = ended.Add(ended.Sub(began))
	z.kept = append(z.kept[max(0, len(z.kept)-zoomsKept+1):], zoomed{of, a})
	return a
}
