package liveview

import (
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"
)

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
