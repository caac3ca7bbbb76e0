// Package audit is for checks of what the runtime tells its callers. They cost nothing where no
// listener is set, which is everywhere but in tests, in the demo and in replays.
package audit

import (
	"sync"
	"sync/atomic"
)

var listener atomic.Pointer[func(error)]

// Listen has f told of each answer that a check finds wrong, in the whole process and on the
// goroutine of the call. It replaces the listener before, and returns that; nil ends the checks.
func Listen(f func(error)) (before func(error)) {
	var set *func(error)
	if f != nil {
		set = &f
	}
	if was := listener.Swap(set); was != nil {
		before = *was
	}
	return before
}

// Check calls check if there is a listener, and tells that of its error.
func Check(check func() error) {
	f := listener.Load()
	if f == nil {
		return
	}
	if err := check(); err != nil {
		(*f)(err)
	}
}

// Panic is the listener of tests: the wrong answer ends the test's process.
func Panic(wrong error) { panic(wrong) }

// Counter counts the answers that checks find wrong. Its methods may be called from any goroutine.
type Counter struct {
	before func(error)

	mu      sync.Mutex
	wrong   uint64
	first   error
	stopped bool
}

// Count begins to count, in the whole process. The listener before is still told. [Counter.Stop]
// gives that its place back; of several counters the last one stops first.
func Count() *Counter {
	c := &Counter{}
	c.mu.Lock() // until before is known
	defer c.mu.Unlock()
	c.before = Listen(c.told)
	return c
}

func (c *Counter) told(wrong error) {
	c.mu.Lock()
	c.wrong++
	if c.first == nil {
		c.first = wrong
	}
	before := c.before
	c.mu.Unlock()
	if before != nil {
		before(wrong)
	}
}

// Stop ends the count. A second call does nothing.
func (c *Counter) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return
	}
	c.stopped = true
	Listen(c.before)
}

// Wrong is how many answers were wrong, and the text of the first.
func (c *Counter) Wrong() (n uint64, first string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first != nil {
		first = c.first.Error()
	}
	return c.wrong, first
}
