// Package audit is for checks of what the runtime tells its callers. They cost nothing where no listener is set, which
// is everywhere but in tests and in the demo.
package audit

import "sync/atomic"

var listener atomic.Pointer[func(error)]

// Listen has f told of each answer that a check finds wrong, in the whole process and on the goroutine of the call. It
// replaces the listener before; nil ends the checks.
func Listen(f func(error)) {
	if f == nil {
		listener.Store(nil)
		return
	}
	listener.Store(&f)
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
