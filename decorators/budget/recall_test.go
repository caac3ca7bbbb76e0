package budget

import (
	"fmt"
	"testing"
)

// What follows tries every order in which threads allocate and free under the protocol
// of [ledger], step by step: a step is what the others see as one. Each thread has at
// most one byte, and the limit is as many as there are threads, so that no refusal is
// ever right.

// recallStep is what a thread does that found no room.
type recallStep byte

const (
	raise recallStep = iota
	sweep
	try
	lower
)

// orderThread is where a thread is: which of its operations, and how far.
type orderThread struct {
	op      int
	recall  int // steps of its recall that are done
	swept   int
	short   bool // it found no room, and recalls
	freeing bool // it has the lock, and has read recalls
	keeps   bool
}

const orderStreams = 2

type orderState struct {
	threads       [3]orderThread
	credit        [orderStreams]int
	locked        [orderStreams]bool
	used, recalls int
}

// orders are all runs of so many threads. Thread i allocates and frees a byte on
// stream i, then on the next, and so on.
type orders struct {
	threads, rounds int
	steps           []recallStep
	seen            map[orderState]bool
	refusals, stuck int
}

func (o *orders) explore(s orderState) {
	if o.seen[s] {
		return
	}
	o.seen[s] = true
	moved, over := false, true
	for i := range o.threads {
		over = over && s.threads[i].op == 2*o.rounds
		if next, ok := o.step(s, i); ok {
			moved = true
			o.explore(next)
		}
	}
	if !moved && !over {
		o.stuck++
	}
}

// step is the state after the next step of a thread, if it can take one.
func (o *orders) step(s orderState, i int) (orderState, bool) {
	th := &s.threads[i]
	stream := (i + th.op/2) % orderStreams
	switch {
	case th.op == 2*o.rounds:
		return s, false
	case th.short:
		return o.recallStep(s, i, stream)
	case th.freeing:
		if th.keeps {
			s.credit[stream]++
		} else {
			s.used--
		}
		s.locked[stream], th.freeing = false, false
		th.op++
		return s, true
	case s.locked[stream]:
		return s, false
	case th.op%2 == 1:
		s.locked[stream], th.freeing, th.keeps = true, true, s.recalls == 0
		return s, true
	}
	if s.grant(stream, o.threads) {
		th.op++
	} else {
		th.short = true
	}
	return s, true
}

// grant takes a byte, of the credit or of the room.
func (s *orderState) grant(stream, limit int) bool {
	switch {
	case s.credit[stream] > 0:
		s.credit[stream]--
	case s.used < limit:
		s.used++
	default:
		return false
	}
	return true
}

func (o *orders) recallStep(s orderState, i, stream int) (orderState, bool) {
	th := &s.threads[i]
	if th.recall == len(o.steps) {
		th.recall, th.short = 0, false
		th.op++
		return s, true
	}
	switch o.steps[th.recall] {
	case raise:
		s.recalls++
	case lower:
		s.recalls--
	case sweep:
		if s.locked[th.swept] {
			return s, false
		}
		s.used, s.credit[th.swept] = s.used-s.credit[th.swept], 0
		if th.swept++; th.swept < orderStreams {
			return s, true
		}
		th.swept = 0
	case try:
		if s.locked[stream] {
			return s, false
		}
		if !s.grant(stream, o.threads) {
			o.refusals++
			return s, false
		}
	}
	th.recall++
	return s, true
}

func TestNoOrderOfStepsRefusesWhatFits(t *testing.T) {
	for _, size := range []struct{ threads, rounds int }{{2, 4}, {3, 2}} {
		for name, c := range map[string]struct {
			steps []recallStep
			right bool
		}{
			"as it is":               {[]recallStep{raise, sweep, try, lower}, true},
			"not recalled":           {[]recallStep{try}, false},
			"no flag":                {[]recallStep{sweep, try}, false},
			"flag after the sweep":   {[]recallStep{sweep, raise, try, lower}, false},
			"flag lowered too early": {[]recallStep{raise, sweep, lower, try}, false},
			"tried before the sweep": {[]recallStep{raise, try, sweep, lower}, false},
		} {
			t.Run(fmt.Sprintf("%d threads/%s", size.threads, name), func(t *testing.T) {
				o := orders{threads: size.threads, rounds: size.rounds, steps: c.steps, seen: map[orderState]bool{}}
				o.explore(orderState{})
				t.Logf("%d states, %d refusals", len(o.seen), o.refusals)
				if right := o.refusals == 0 && o.stuck == 0; c.right != right {
					t.Errorf("%d refusals of what fits, %d stuck, in %d states", o.refusals, o.stuck, len(o.seen))
				}
			})
		}
	}
}
