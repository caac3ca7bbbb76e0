package interleave

import (
	"fmt"
	"runtime"
	"strings"
)

// The state of the process. Goroutines that are scheduled hand it on; nothing
// else runs meanwhile, so it needs no lock.
var (
	// exploring is the run under way, nil outside explorations.
	exploring *run
	// current is the goroutine that runs, nil while the run is made ready.
	current *thread
	// epoch numbers the runs.
	epoch uint32
	// resets are called before every run.
	resets []func()
)

// OnReset has f called before every run: for what the scheduled code counts from
// the start of the process and must count alike every time.
func OnReset(f func()) { resets = append(resets, f) }

// thread is a goroutine that is scheduled.
type thread struct {
	id uint8
	// resume lets it run until it stops; false when it has ended. stop is what
	// it calls to stop.
	resume func() (struct{}, bool)
	stop   func(struct{}) bool
	ended  bool
	// waits is the lock that its next step takes, nil if that is no lock.
	waits lock
	// tried is the lock that it tried for last, so many times in vain.
	tried *Mutex
	tries int
	// number stands for its steps so far and all before them; met counts the
	// objects that it was the first to touch.
	number, met uint64
}

func (t *thread) ready() bool { return !t.ended && (t.waits == nil || t.waits.isFree()) }

// lock is what a step may wait for.
type lock interface{ isFree() bool }

// Current is the number of the goroutine that runs, from 0; -1 if none of them
// does.
func Current() int {
	if current == nil {
		return -1
	}
	return int(current.id)
}

// End ends the run under way, so that what follows may use goroutines of its own.
// A [Test.Check] may call it.
func End() { exploring = nil }

// Met is how many objects were touched so far while the present run was made
// ready.
func Met() uint64 {
	if exploring == nil {
		return 0
	}
	return exploring.met
}

// Do is called before a step on some objects that the caller then does. It
// lets other goroutines run first.
func Do(objects ...Access) {
	r, t := exploring, current
	if r == nil {
		return
	}
	for _, a := range objects {
		a.Object.meet(r, t)
	}
	if t != nil {
		r.before(t, objects, nil)
	}
}

// step is Do for one object.
func (o *Object) step(write bool) {
	r, t := exploring, current
	if r == nil {
		return
	}
	o.meet(r, t)
	if t != nil {
		r.one[0] = Access{o, write}
		r.before(t, r.one[:], nil)
	}
}

// before stops t before a step, lets others run, and returns when it is t's
// turn. A step that waits for a lock comes when that is free.
func (r *run) before(t *thread, objects []Access, l lock) {
	first := objects[0] // r.one may be another's when t goes on
	stop := r.test.All
	for _, a := range objects {
		stop = stop || a.Object.shared
	}
	r.steps++
	if l != nil && !l.isFree() || r.steps > maxSteps {
		stop = true
	}
	if stop {
		t.waits = l
		if next := r.decide(t); next != t {
			r.next = next
			r.tell(t, "stops before")
			t.stop(struct{}{})
			r.tell(t, "goes on with")
		}
		t.waits = nil
	}
	if len(objects) == 1 {
		r.one[0] = first
		objects = r.one[:]
	}
	r.note(t, objects)
}

// tell adds to the trace where t is.
func (r *run) tell(t *thread, does string) {
	if r.trace == nil {
		return
	}
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	var where []string
	for len(where) < 3 {
		f, more := frames.Next()
		if own := strings.Contains(f.Function, "/interleave."); !own {
			where = append(where, fmt.Sprintf("%s:%d", f.File[strings.LastIndexByte(f.File, '/')+1:], f.Line))
		}
		if !more {
			break
		}
	}
	*r.trace = append(*r.trace, fmt.Sprintf("goroutine %d %s %s", t.id, does, strings.Join(where, " < ")))
}
