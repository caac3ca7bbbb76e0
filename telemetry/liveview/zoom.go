package liveview

import (
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
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

// parts is the stretch in whole parts, the finest that are not too many, with what covers
// it from end to end: a map is of the stretch, also where nothing is.
func (s stretch) parts() (stretch, *coverage) {
	all := newCoverage(minPartShift)
	for (s.to-s.from)>>all.shift > zoomParts {
		all.shift++
	}
	part := uint64(1)<<all.shift - 1
	s.from &^= part
	if to := (s.to + part) &^ part; to > s.to { // the last part of all has no end
		s.to = to
	}
	all.parts[s.from>>all.shift], all.parts[(s.to-1)>>all.shift] = &byState{}, &byState{}
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

// answer is something that pages ask for, as JSON.
type answer struct {
	text json.RawMessage
	// serial numbers the answers, so that a page need not get one twice.
	serial uint64
	// due is when it is to be made anew.
	due time.Time
}

// mapShare bounds the part of the time for which something is made.
const mapShare = 20

// newAnswer makes an answer that serves for an interval at least.
func newAnswer(serial uint64, interval time.Duration, of any, began time.Time) *answer {
	text, err := json.Marshal(of)
	if err != nil { // it has nothing that could not be written
		text = json.RawMessage("null")
	}
	ended := time.Now()
	return &answer{text, serial, ended.Add(max(interval, mapShare*ended.Sub(began)))}
}

func (a *answer) fresh() bool { return a != nil && time.Now().Before(a.due) }

// shared keeps the newest answer for everybody who asks. It is made anew when it is
// asked for, at most once an interval and for at most a part of the time.
type shared struct {
	interval time.Duration
	make     func(serial uint64) any

	making sync.Mutex // held while an answer is made
	last   atomic.Pointer[answer]
}

// newest is an answer that is fresh. Callers wait while it is made.
func (s *shared) newest() *answer {
	s.making.Lock()
	defer s.making.Unlock()
	return s.remake()
}

// soonest is newest, or the former answer while one is made: callers wait only if
// there is none.
func (s *shared) soonest() *answer {
	former := s.last.Load()
	if former == nil {
		return s.newest()
	}
	if former.fresh() || !s.making.TryLock() {
		return former
	}
	defer s.making.Unlock()
	return s.remake()
}

// remake makes an answer, unless there is one that is fresh; making must be held.
func (s *shared) remake() *answer {
	former, serial := s.last.Load(), uint64(1)
	if former.fresh() {
		return former
	}
	if former != nil {
		serial = former.serial + 1
	}
	began := time.Now()
	a := newAnswer(serial, s.interval, s.make(serial), began)
	s.last.Store(a)
	return a
}
