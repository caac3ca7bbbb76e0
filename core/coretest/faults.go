package coretest

import (
	"fmt"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
)

// Fault is one failure to inject.
type Fault struct {
	// Method is the method of [core.Resource] to fail, such as "Allocate".
	Method string
	// Call is the number of the call to fail, from 1 on, counted from the
	// injector's start. Zero fails every call.
	Call int
	// Err is what the call returns.
	Err error
	// After fails the call after its upstream did the work. What upstream
	// handed out is given back first, so that nothing leaks.
	After bool
}

// Faults wraps a resource and makes chosen calls of it fail, to test what
// sits above. It keeps the contract that an error consumes nothing where that
// is possible: an allocation or reservation failed after the fact is undone, a
// prepared use is aborted. Two things it cannot undo: a free or a released
// claim that fails after the fact is done all the same, like an answer that
// was lost on its way; and FinishUse and AbortUse always reach upstream,
// because their tickets are spent even when they fail. It is safe for
// concurrent use.
type Faults struct {
	upstream core.Resource

	mu     sync.Mutex
	faults []Fault
	calls  map[string]int
	fired  int
}

var _ core.Resource = (*Faults)(nil)

// NewFaults wraps upstream. Without faults it changes nothing.
func NewFaults(upstream core.Resource, faults ...Fault) *Faults {
	f := &Faults{upstream: upstream, calls: map[string]int{}}
	f.Inject(faults...)
	return f
}

// Inject adds faults. A method that cannot fail is a mistake in the test and
// panics.
func (f *Faults) Inject(faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fault := range faults {
		if !failable[fault.Method] || fault.Err == nil {
			panic(fmt.Sprintf("coretest: a fault in %q with error %v can never be seen", fault.Method, fault.Err))
		}
		f.faults = append(f.faults, fault)
	}
}

// Clear removes all faults. The calls counted so far stay counted.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = nil
}

// Count is the number of calls of method so far.
func (f *Faults) Count(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[method]
}

// Fired is the number of calls that were failed so far. A test that injects
// checks it, to know that its faults were reached.
func (f *Faults) Fired() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fired
}

// String is "faults(upstream)".
func (f *Faults) String() string { return "faults(" + f.upstream.String() + ")" }

var failable = map[string]bool{"Allocate": true, "Deallocate": true, "PrepareUse": true, "FinishUse": true, "AbortUse": true,
	"RecordUse": true, "Reserve": true, "ReleaseClaim": true, "ReapPending": true, "Drain": true}

// next counts a call and returns the errors to answer it with, before and
// after upstream.
func (f *Faults) next(method string) (before, after error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[method]++
	for _, fault := range f.faults {
		if fault.Method != method || fault.Call != 0 && fault.Call != f.calls[method] {
			continue
		}
		f.fired++
		if fault.After {
			return nil, fault.Err
		}
		return fault.Err, nil
	}
	return nil, nil
}
