package cures

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
)

// Quarantine is a layer that holds freed memory back. Its methods are safe for concurrent use.
type Quarantine interface {
	// Given counts the blocks that it has given up.
	Given() uint64
	// GiveUp gives up a part, of so many bytes at least if it has them. It reports whether anything
	// was given up, by this call or by another since Given was so much.
	GiveUp(ctx context.Context, bytes, given uint64) bool
	// Blocked is how many bytes are freed and wait for the end of a launch that is open. A reap
	// brings none of them.
	Blocked() uint64
}

// Setup is what a room goes by. The zero value waits for nothing and tells nothing.
type Setup struct {
	// Patience is how long a request waits for the device in all, if it is positive.
	Patience time.Duration
	// Events, if not nil, is told of each refusal that a caller hears of, and of each that was cured,
	// as events of the layer that is named.
	Events oplog.Sink
	Layer  string
	// BeginStep, if not nil, shows waits in traces.
	BeginStep func(context.Context, oplog.Step) (end func(error))
	// Program, if not nil, is asked for memory: it reports whether it gave some back.
	Program func(ctx context.Context, bytes uint64) bool
	// Now is the clock of events; nil means time.Now.
	Now func() time.Time
}

// Room is where a stack looks for memory. Make one with [New]. The layers above the backend add
// themselves while the stack is built. After that its methods are safe for concurrent use.
type Room struct {
	setup       Setup
	ask, top    core.Resource
	quarantines []Quarantine
	segments    int

	waiting            atomic.Int64
	relieved           atomic.Uint64
	failures, refusals atomic.Uint64 // that were followed by another try
	waits, waitsServed atomic.Uint64
	waited             atomic.Int64

	mu      sync.Mutex
	polling [hastes]bool
	changed chan struct{} // closed when a poll has seen a change
}

// New is the room of a stack, of which only the innermost layer is there. It looks for nothing
// before a layer joins.
func New() *Room { return &Room{changed: make(chan struct{})} }

// Join adds a layer that knows of cures: the room asks its upstream from now on. It is for the
// construction of the layer.
func (r *Room) Join(layer, upstream core.Resource) { r.top, r.ask = layer, upstream }

// Split notes that a layer without a path of its own splits the stack. It returns the number of the
// part above it. It is for the construction of a layer.
func (r *Room) Split() int {
	r.segments++
	return r.segments
}

// Above reports whether a part of the stack lies above that of the number. The lowest has number 0.
func (r *Room) Above(segment int) bool { return segment < r.segments }

// Searches reports whether a layer has joined, so that requests look for memory.
func (r *Room) Searches() bool { return r.ask != nil }

// HoldsBack adds a layer that has a quarantine. It is for the construction of the layer.
func (r *Room) HoldsBack(q Quarantine) { r.quarantines = append(r.quarantines, q) }

// Configure changes what the room goes by. It is for the construction of a stack.
func (r *Room) Configure(change func(*Setup)) { change(&r.setup) }

// Waiting is how many requests wait for the device now.
func (r *Room) Waiting() int64 { return r.waiting.Load() }

// Relieved counts the requests that were served after a cure.
func (r *Room) Relieved() uint64 { return r.relieved.Load() }

// AddTo adds the waits to the statistics of the topmost layer that has joined, and takes off the
// refusals and failures that another try followed: one call has failed once, or not at all. of is
// the layer that asks.
func (r *Room) AddTo(s *core.Stats, of core.Resource) {
	if of != r.top {
		return
	}
	s.Failures = saturatingSub(s.Failures, r.failures.Load())
	s.Refusals = saturatingSub(s.Refusals, r.refusals.Load())
	s.MemoryWaits += r.waits.Load()
	s.MemoryWaitsServed += r.waitsServed.Load()
	s.MemoryWaitTime += time.Duration(r.waited.Load())
}

func (r *Room) now() time.Time {
	if r.setup.Now != nil {
		return r.setup.Now()
	}
	return time.Now()
}
