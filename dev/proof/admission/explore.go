// Package admission explores all states of the queue of package admit: the transitions are the shipped
// ones, of [line.Ledger], which the gate calls under its lock, and their callers are a few jobs
// that do anything at any time. A context that ends is a place that is given up, or a leave where the
// decision came first. dev/proof.md says what is shown.
package admission

import (
	"fmt"
	"hash/maphash"

	"github.com/fencepost-gpu/fencepost/internal/line"
)

// Job is what one of the jobs may do. It begins again and again.
type Job struct {
	Least, Wants uint64   // what it asks for
	Learns       uint64   // what it asks for when others have shown how much it needs
	Uses         []uint64 // what it uses in turn, inside
	Settles      []uint64 // what it may settle for
}

// Bounds are what is explored.
type Bounds struct {
	Jobs   []Job // mostJobs at most
	Limits []uint64
	Passes int
}

// Result is what was found.
type Result struct {
	States, Transitions int
	Waiting             int // the most at once
	Granted, Passed     int // how often
	Refused, GaveUp     int
	Short               int // how often more was used than there was room for
}

const mostJobs = 8

// state is that of the ledger and its callers, small and comparable.
type state struct {
	limit, given uint8
	jobs         [mostJobs]inside
	line         [mostJobs]waiter // in the order of the ledger; those who come first have number 0 behind them
}

type inside struct {
	is             bool
	reserved, used uint8
}

type waiter struct {
	job           uint8 // one more than its number, or 0
	bytes, passed uint8 // as the ledger says
	overtaken     uint8 // as was seen, while it is the first
	learned       bool
}

// needs are the bytes that one who waits asks for, at least and at most.
func (e *explorer) needs(w waiter) (least, bytes uint64) {
	job := &e.Jobs[w.job-1]
	if w.learned {
		return job.Learns, job.Learns
	}
	return max(1, job.Least), max(1, job.Least, job.Wants)
}

// Explore visits all states that can be reached, and returns the first that should not be.
func Explore(b Bounds) (Result, error) {
	e := explorer{Bounds: b, ledger: line.NewLedger(0, b.Passes), seed: maphash.MakeSeed()}
	layer := []state{{limit: uint8(b.Limits[0])}}
	for e.visit(layer[0]); len(layer) > 0; {
		var next []state
		for i := range layer {
			if err := e.expand(&layer[i], &next); err != nil {
				return e.result, err
			}
		}
		layer = next
	}
	return e.result, nil
}

type explorer struct {
	Bounds
	result Result
	ledger line.Ledger
	places [mostJobs]int // of the jobs that wait, in ledger
	seed   maphash.Seed
	seen   []uint64 // hashes of states, by hash, in an open table
	count  int
}

// visit reports whether a state is new. States are told apart by 64 bits of a hash: that two of
// 3*10^7 have the same has a probability of 3*10^-5, and hides one.
func (e *explorer) visit(s state) bool {
	if 2*e.count >= len(e.seen) {
		old := e.seen
		e.seen = make([]uint64, max(1<<16, 2*len(old)))
		for _, h := range old {
			if h != 0 {
				e.seen[e.free(h)] = h
			}
		}
	}
	h := max(1, maphash.Comparable(e.seed, s))
	at := e.free(h)
	if e.seen[at] == h {
		return false
	}
	e.seen[at] = h
	e.count++
	e.result.States++
	return true
}

func (e *explorer) free(h uint64) int {
	mask := uint64(len(e.seen) - 1)
	at := h & mask
	for e.seen[at] != 0 && e.seen[at] != h {
		at = (at + 1) & mask
	}
	return int(at)
}

// expand takes all steps from a state.
func (e *explorer) expand(s *state, next *[]state) error {
	var err error
	try := func(what string, job int, number uint64, step func(*state) error) {
		if err != nil {
			return
		}
		to := *s
		e.restore(s)
		if err = e.take(&to, step); err != nil {
			err = fmt.Errorf("%s of job %d, %d: %w\nbefore: %+v\nafter:  %+v", what, job, number, err, *s, to)
		} else if e.visit(to) {
			*next = append(*next, to)
		}
	}
	for j := range e.Jobs {
		job := &e.Jobs[j]
		switch place := s.place(j); {
		case place >= 0:
			try("giving up", j, 0, func(to *state) error {
				e.result.GaveUp++
				e.ledger.GiveUp(e.places[j])
				to.unqueue(place)
				return nil
			})
			if job.Learns > 0 && !s.line[place].learned {
				try("learning", j, job.Learns, func(to *state) error {
					to.line[place].learned = true
					e.ledger.AskAgain(e.places[j], job.Learns, job.Learns)
					return nil
				})
			}
		case s.jobs[j].is:
			for _, bytes := range job.Uses {
				try("using", j, bytes, func(to *state) error { return e.use(to, j, bytes) })
			}
			for _, bytes := range job.Settles {
				try("settling", j, bytes, func(to *state) error {
					e.change(to, j, func(g *line.Grant) { e.ledger.Settle(g, bytes) })
					return nil
				})
			}
			try("leaving", j, 0, func(to *state) error {
				e.change(to, j, e.ledger.Leave)
				to.jobs[j] = inside{}
				return nil
			})
		default:
			try("asking", j, job.Wants, func(to *state) error {
				for i := range to.line {
					if to.line[i].job == 0 {
						to.line[i] = waiter{job: uint8(j + 1)}
						break
					}
				}
				e.places[j] = e.ledger.Ask(job.Least, job.Wants)
				return nil
			})
		}
	}
	for _, limit := range e.Limits {
		try("a limit", -1, limit, func(to *state) error {
			to.limit = uint8(limit)
			e.ledger.SetLimit(limit)
			return nil
		})
	}
	return err
}

// restore takes the ledger to a state.
func (e *explorer) restore(s *state) {
	st := line.State{Limit: uint64(s.limit), Given: uint64(s.given)}
	for i, w := range s.line {
		if w.job == 0 {
			break
		}
		e.places[w.job-1] = i
		least, wants := e.needs(w)
		st.Waiting = append(st.Waiting, line.Waiter{Least: least, Wants: wants, Bytes: uint64(w.bytes), Passed: int(w.passed)})
	}
	e.ledger.Restore(st)
}

func (e *explorer) change(to *state, j int, how func(*line.Grant)) {
	g := line.Grant{Reserved: uint64(to.jobs[j].reserved), Used: uint64(to.jobs[j].used)}
	how(&g)
	to.jobs[j].reserved, to.jobs[j].used = uint8(g.Reserved), uint8(g.Used)
}

// use demands that what is said to be short is what there is no room for.
func (e *explorer) use(to *state, j int, bytes uint64) error {
	before, short := to.given64(), uint64(0)
	e.change(to, j, func(g *line.Grant) { short = e.ledger.Use(g, bytes) })
	grown := to.given64() - min(before, to.given64())
	want := uint64(0)
	if limit := uint64(to.limit); grown > 0 && to.given64() > limit {
		want = min(grown, to.given64()-limit)
		e.result.Short++
	}
	if short != want {
		return fmt.Errorf("books: %d bytes are said to be short, and %d are", short, want)
	}
	return nil
}

// take takes a step, applies what was decided, and judges.
func (e *explorer) take(to *state, step func(*state) error) error {
	e.result.Transitions++
	if err := step(to); err != nil {
		return err
	}
	for _, d := range e.ledger.Told {
		if err := e.decide(to, d); err != nil {
			return err
		}
	}
	return e.judge(to)
}

func (e *explorer) decide(to *state, d line.Decision) error {
	at := -1
	for i, w := range to.line {
		if w.job > 0 && e.places[w.job-1] == d.Place {
			at = i
		}
	}
	if at < 0 {
		return fmt.Errorf("books: a place %d is decided that nobody has", d.Place)
	}
	j := int(to.line[at].job - 1)
	limit := uint64(to.limit)
	room := limit - min(limit, to.given64())
	least, wants := e.needs(to.line[at])
	switch {
	case d.Bytes == 0 && least <= limit:
		return fmt.Errorf("refusal: job %d may fit", j)
	case d.Bytes == 0:
		e.result.Refused++
		to.unqueue(at)
		return nil
	case d.Bytes > room:
		return fmt.Errorf("overcommit: job %d gets %d bytes where there is room for %d", j, d.Bytes, room)
	case d.Bytes != min(wants, limit):
		return fmt.Errorf("books: job %d gets %d bytes", j, d.Bytes)
	case at > 0:
		e.result.Passed++
		if to.line[0].overtaken++; int(to.line[0].overtaken) > e.Passes {
			return fmt.Errorf("overtaken: the first was passed by %d", to.line[0].overtaken)
		}
		if _, wants := e.needs(to.line[0]); min(wants, limit) <= room {
			return fmt.Errorf("order: job %d passes one that fits", j)
		}
	}
	e.result.Granted++
	to.unqueue(at)
	to.jobs[j] = inside{is: true, reserved: uint8(d.Bytes)}
	return nil
}

// judge looks at a state in which no call is under way.
func (e *explorer) judge(to *state) error {
	s := e.ledger.State()
	if to.given = uint8(s.Given); s.Given != to.given64() {
		return fmt.Errorf("books: %d bytes are given, and the ledger says %d", to.given64(), s.Given)
	}
	waiting := 0
	for waiting < mostJobs && to.line[waiting].job > 0 {
		waiting++
	}
	if waiting != len(s.Waiting) || uint64(to.limit) != s.Limit {
		return fmt.Errorf("books: %d wait, and in the ledger %d", waiting, len(s.Waiting))
	}
	e.result.Waiting = max(e.result.Waiting, waiting)
	for i, w := range s.Waiting {
		to.line[i].bytes, to.line[i].passed = uint8(w.Bytes), uint8(w.Passed)
		if w.Least > s.Limit || w.Bytes > s.Limit {
			return fmt.Errorf("deadlock: job %d waits for %d bytes, and %d at least, of a limit of %d", to.line[i].job-1, w.Bytes, w.Least, s.Limit)
		}
	}
	if waiting == 0 {
		return nil
	}
	if s.Given == 0 {
		return fmt.Errorf("deadlock: %d wait, and nobody is inside who could leave", waiting)
	}
	if room := s.Limit - min(s.Limit, s.Given); s.Waiting[0].Bytes <= room {
		return fmt.Errorf("asleep: the first waits for %d bytes, and there is room for %d", s.Waiting[0].Bytes, room)
	} else if int(to.line[0].overtaken) < e.Passes {
		for _, w := range s.Waiting[1:] {
			if w.Bytes <= room {
				return fmt.Errorf("asleep: one that may pass waits for %d bytes, and there is room for %d", w.Bytes, room)
			}
		}
	}
	return nil
}

// given64 is what all inside have.
func (s *state) given64() (sum uint64) {
	for _, j := range s.jobs {
		sum += uint64(max(j.reserved, j.used))
	}
	return sum
}

// place is where a job stands in the line, or -1.
func (s *state) place(job int) int {
	for i, w := range s.line {
		if int(w.job) == job+1 {
			return i
		}
	}
	return -1
}

func (s *state) unqueue(at int) {
	copy(s.line[at:], s.line[at+1:])
	s.line[mostJobs-1] = waiter{}
}
