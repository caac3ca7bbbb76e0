package interleave

import (
	"errors"
	"fmt"
	"iter"
)

// maxThreads is how many goroutines can be scheduled.
const maxThreads = 4

// maxSteps ends a run that would not end: no call takes a tenth of these.
const maxSteps = 20_000

// choice is a point at which more than one goroutine could go on.
type choice struct {
	options  [maxThreads]uint8
	n, taken uint8
	// costs: another than the first is a preemption.
	costs bool
}

// reached is a state in which a choice was made: the sum that stands for all
// orders of the same steps, and who was running.
type reached struct {
	state uint64
	who   int8
}

// run is one execution.
type run struct {
	*search
	threads []*thread
	next    *thread
	// depth is how many choices were made, budget how many preemptions are
	// left.
	depth, budget int
	// known: from here on nothing is new.
	known bool
	state uint64
	met   uint64
	steps int
	one   [1]Access
	fault error
	trace *[]string
}

// ErrDeadlock is what an execution ends with in which no goroutine can go on.
var ErrDeadlock = errors.New("deadlock: every goroutine waits for a lock that another holds")

func (r *run) fail(text string) { r.failWith(errors.New(text)) }

func (r *run) failWith(err error) {
	if r.fault == nil {
		r.fault = err
	}
}

// start makes the goroutines. They run when they are resumed.
func (r *run) start(bodies []func()) {
	for i, body := range bodies {
		t := &thread{id: uint8(i), number: mix(uint64(i), 0)}
		t.resume, _ = iter.Pull(func(yield func(struct{}) bool) {
			t.stop = yield
			body()
		})
		r.threads = append(r.threads, t)
	}
}

// execute lets the goroutines run until all have ended, or none can go on.
func (r *run) execute() {
	defer func() {
		current = nil
		if p := recover(); p != nil {
			r.fault = fmt.Errorf("the code panicked: %v", p)
		}
	}()
	for t := r.decide(nil); t != nil; {
		current = t
		_, alive := t.resume()
		current = nil
		if alive {
			t = r.next
		} else {
			t.ended = true
			t = r.decide(t)
		}
	}
}

// decide chooses who goes on: t, which is about to take a step or has ended,
// or another. It returns nil at the end.
func (r *run) decide(t *thread) *thread {
	if r.steps > maxSteps {
		r.fail("the goroutines do not come to an end")
		return nil
	}
	c := r.options(t)
	switch {
	case c.n == 0:
		for _, t := range r.threads {
			if !t.ended {
				r.failWith(ErrDeadlock)
			}
		}
		return nil
	case c.n > 1:
		r.choose(&c, t)
	}
	if c.taken > 0 && c.costs {
		r.budget--
	}
	return r.threads[c.options[c.taken]]
}

// options are those who can go on, t first if it can: another is then a
// preemption.
func (r *run) options(t *thread) (c choice) {
	if t != nil && t.ready() {
		c.costs = true
		c.add(t.id)
		if r.budget == 0 {
			return c
		}
	}
	for i := range r.threads {
		if t != nil { // the one that comes next, in turn
			i = (int(t.id) + 1 + i) % len(r.threads)
		}
		if other := r.threads[i]; other != t && other.ready() {
			c.add(other.id)
		}
	}
	return c
}

func (c *choice) add(id uint8) {
	c.options[c.n] = id
	c.n++
}

// choose takes the option whose turn it is: the one that the search has come
// to, or the first where it has not been.
func (r *run) choose(c *choice, t *thread) {
	if r.depth < len(r.path) {
		planned := r.path[r.depth]
		r.depth++
		if planned.n != c.n || planned.options != c.options {
			r.fail("the same choices led elsewhere: something that is not scheduled has changed")
		}
		c.taken = min(planned.taken, c.n-1)
		return
	}
	if r.known || r.wasHere(c, t) {
		r.known = true
		return
	}
	r.path = append(r.path, *c)
	r.depth++
}

// wasHere reports whether the search has been in this state, with as many
// preemptions left.
func (r *run) wasHere(c *choice, t *thread) bool {
	if r.test.All {
		return false
	}
	key := reached{r.state, -1}
	if c.costs {
		key.who = int8(t.id)
	}
	if left, ok := r.seen[key]; ok && int(left) >= r.budget {
		return true
	}
	r.seen[key] = int8(r.budget)
	return false
}
