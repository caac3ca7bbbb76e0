package interleave

import (
	"errors"
	"fmt"
	"testing"
)

var errLost = errors.New("an increment was lost")

// lostUpdate is goroutines that each increment a number in two steps.
func lostUpdate(preemptions int) Test {
	x := new(Int32)
	increment := func() { x.Store(x.Load() + 1) }
	return Test{
		Preemptions: preemptions,
		Prepare:     func() []func() { x = new(Int32); return []func(){increment, increment} },
		Check: func() error {
			if x.Load() != 2 {
				return errLost
			}
			return nil
		},
	}
}

func TestALostUpdateIsFoundWithOnePreemption(t *testing.T) {
	if _, err := Explore(lostUpdate(0)); err != nil {
		t.Error("without preemptions:", err)
	}
	_, err := Explore(lostUpdate(1))
	var f *Failure
	if !errors.Is(err, errLost) || !errors.As(err, &f) || len(f.Trace) == 0 {
		t.Errorf("with one: %v", err)
	}
}

func TestADeadlockIsFound(t *testing.T) {
	var a, b *Mutex
	both := func(first, second **Mutex) func() {
		return func() {
			(*first).Lock()
			defer (*first).Unlock()
			(*second).Lock()
			defer (*second).Unlock()
		}
	}
	test := Test{Preemptions: 1, Check: func() error { return nil }}
	test.Prepare = func() []func() { a, b = new(Mutex), new(Mutex); return []func(){both(&a, &b), both(&a, &b)} }
	if _, err := Explore(test); err != nil {
		t.Error("in one order:", err)
	}
	test.Prepare = func() []func() { a, b = new(Mutex), new(Mutex); return []func(){both(&a, &b), both(&b, &a)} }
	if _, err := Explore(test); !errors.Is(err, ErrDeadlock) {
		t.Error("in two orders:", err)
	}
}

func TestALockKeepsOthersOutAndTryLockDoesNotWait(t *testing.T) {
	var mu *Mutex
	var inside, most, refused int
	enter := func() {
		inside++
		most = max(most, inside)
		Do(Access{new(Object), true})
		inside--
		mu.Unlock()
	}
	test := Test{Preemptions: 2, All: true, Check: func() error { return nil }}
	test.Prepare = func() []func() {
		mu = new(Mutex)
		return []func(){
			func() { mu.Lock(); enter() },
			func() {
				if !mu.TryLock() {
					refused++
					return
				}
				enter()
			},
			func() { mu.Lock(); enter() },
		}
	}
	if _, err := Explore(test); err != nil || most != 1 || refused == 0 {
		t.Errorf("at most %d were inside, %d were refused: %v", most, refused, err)
	}
}

func TestReadersShareALockThatAWriterHasAlone(t *testing.T) {
	var mu *RWMutex
	var readers, most, writers, refused int
	read := func() {
		mu.RLock()
		readers++
		most = max(most, readers)
		Do(Access{new(Object), true})
		if readers--; writers != 0 {
			exploring.fail("a reader beside a writer")
		}
		mu.RUnlock()
	}
	write := func() {
		writers++
		Do(Access{new(Object), true})
		if writers--; writers != 0 || readers != 0 {
			exploring.fail("a writer beside others")
		}
		mu.Unlock()
	}
	test := Test{Preemptions: 2, All: true, Check: func() error { return nil }}
	test.Prepare = func() []func() {
		mu = new(RWMutex)
		return []func(){read, read, func() { mu.Lock(); write() }, func() {
			if !mu.TryLock() {
				refused++
				return
			}
			write()
		}}
	}
	if _, err := Explore(test); err != nil || most != 2 || refused == 0 {
		t.Errorf("at most %d read at once, %d were refused: %v", most, refused, err)
	}
	var other *Mutex
	test.Prepare = func() []func() {
		mu, other = new(RWMutex), new(Mutex)
		return []func(){
			func() { mu.RLock(); defer mu.RUnlock(); other.Lock(); defer other.Unlock() },
			func() { other.Lock(); defer other.Unlock(); mu.Lock(); defer mu.Unlock() },
		}
	}
	if _, err := Explore(test); !errors.Is(err, ErrDeadlock) {
		t.Error("a reader and a writer in two orders:", err)
	}
}

func TestAGoroutineThatPollsForALockComesToAnEnd(t *testing.T) {
	var mu *Mutex
	var tries [mostTries + 2]int
	test := Test{Preemptions: 1, Check: func() error { return nil }}
	test.Prepare = func() []func() {
		mu = new(Mutex)
		return []func(){
			func() { mu.Lock(); defer mu.Unlock(); Do(Access{new(Object), true}) },
			func() {
				n := 0
				for !mu.TryLock() {
					n++
				}
				mu.Unlock()
				tries[n]++
			},
		}
	}
	if _, err := Explore(test); err != nil || tries[0] == 0 || tries[mostTries] == 0 {
		t.Errorf("%v; how often after so many tries in vain: %v", err, tries)
	}
}

func TestACountBelowZeroAPanicAndALivelockAreFaults(t *testing.T) {
	for name, body := range map[string]func(*Int64){
		"count": func(x *Int64) { x.Add(-1) },
		"panic": func(x *Int64) { _ = []int64{}[x.Load()] },
		"livelock": func(x *Int64) {
			for x.Load() == 0 && x.CompareAndSwap(0, 0) {
				x.Store(0)
			}
		},
	} {
		var x *Int64
		test := Test{Preemptions: 1, Check: func() error { return nil }}
		test.Prepare = func() []func() { x = new(Int64); return []func(){func() { body(x) }, func() { body(x) }} }
		if _, err := Explore(test); err == nil {
			t.Errorf("%s: nothing was found", name)
		}
	}
}

// TestNothingIsLeftOutWithoutTheReduction compares the number of executions
// with that of the ways to merge the steps of goroutines. A goroutine stops
// before each step, so what comes before its first is a step, too.
func TestNothingIsLeftOutWithoutTheReduction(t *testing.T) {
	for _, c := range []struct {
		steps []int
		want  uint64
	}{
		{[]int{1, 1}, 6}, // 4 over 2
		{[]int{2, 2}, 20},
		{[]int{3, 1}, 15},
		{[]int{1, 1, 1}, 90},
	} {
		var x *Int32
		got, err := Explore(Test{Preemptions: 99, All: true, Check: func() error { return nil }, Prepare: func() []func() {
			x = new(Int32)
			return readers(c.steps, func() *Int32 { return x })
		}})
		if err != nil || got.Ends != c.want {
			t.Errorf("%v: %+v, want %d: %v", c.steps, got, c.want, err)
		}
	}
}

func readers(steps []int, x func() *Int32) (bodies []func()) {
	for _, n := range steps {
		bodies = append(bodies, func() {
			for range n {
				x().Add(1)
			}
		})
	}
	return bodies
}

// small is programs of goroutines that do a few steps on a few objects each,
// numbered.
func small(n int) (threads [][]int) {
	for range 2 {
		var steps []int
		for range 3 {
			steps = append(steps, n%6)
			n /= 6
		}
		threads = append(threads, steps)
	}
	return threads
}

// outcomes is what all executions of a small program leave: what every
// goroutine has read, and the values in the end.
func outcomes(t *testing.T, threads [][]int, preemptions int, all bool) (map[string]bool, uint64) {
	t.Helper()
	found := map[string]bool{}
	var x [2]*Uint32
	var lock *Mutex
	var read [2][]uint32
	body := func(me int, steps []int) func() {
		return func() {
			for i, s := range steps {
				switch on := x[s%2]; s / 2 {
				case 0:
					read[me] = append(read[me], on.Load())
				case 1:
					on.Store(uint32(10*me + i + 1))
				case 2:
					lock.Lock()
					read[me] = append(read[me], on.Load())
					on.Store(uint32(10*me + i + 1))
					lock.Unlock()
				}
			}
		}
	}
	got, err := Explore(Test{Preemptions: preemptions, All: all,
		Prepare: func() (bodies []func()) {
			x, lock, read = [2]*Uint32{new(Uint32), new(Uint32)}, new(Mutex), [2][]uint32{}
			for me, steps := range threads {
				bodies = append(bodies, body(me, steps))
			}
			return bodies
		},
		Check: func() error {
			found[fmt.Sprint(read, x[0].Load(), x[1].Load())] = true
			return nil
		}})
	if err != nil {
		t.Fatal(threads, err)
	}
	return found, got.Executions
}

// TestTheReductionLosesNoOutcome compares what can come about with the
// reduction and without, for many small programs and every bound.
func TestTheReductionLosesNoOutcome(t *testing.T) {
	var all, reduced uint64
	step := 31
	if testing.Short() {
		step *= 10
	}
	for n := 0; n < 6*6*6*6*6*6; n += step {
		threads := small(n)
		for preemptions := range 3 {
			want, executions := outcomes(t, threads, preemptions, true)
			all += executions
			got, executions := outcomes(t, threads, preemptions, false)
			reduced += executions
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("%v with %d preemptions:\n%v, want\n%v", threads, preemptions, got, want)
			}
		}
	}
	t.Logf("%d executions instead of %d", reduced, all)
	if reduced >= all {
		t.Error("that is no reduction")
	}
}
