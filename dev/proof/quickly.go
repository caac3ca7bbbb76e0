package proof

import (
	"context"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/quick"
)

// Quickly is how many operations the quick path has served, and how many it has declined, which
// then went the ordinary way.
type Quickly struct {
	Allocations, Frees                 uint64
	DeclinedAllocations, DeclinedFrees uint64
}

// Add adds those of another.
func (q *Quickly) Add(o Quickly) { addCounters(q, o) }

// Since is what came after an earlier count.
func (q Quickly) Since(o Quickly) Quickly {
	return Quickly{q.Allocations - o.Allocations, q.Frees - o.Frees, q.DeclinedAllocations - o.DeclinedAllocations, q.DeclinedFrees - o.DeclinedFrees}
}

// Reach reports whether there are as many of each kind as in floor.
func (q Quickly) Reach(floor Quickly) bool { return reachCounters(q, floor) }

// String is such as "allocations=93 frees=20 declined=191+50".
func (q Quickly) String() string {
	return fmt.Sprintf("allocations=%d frees=%d declined=%d+%d", q.Allocations, q.Frees, q.DeclinedAllocations, q.DeclinedFrees)
}

// Entry is an outermost layer over a backend, which does nothing but enter the quick path, and
// goes the ordinary way if that declines. It counts for one goroutine at a time.
type Entry struct {
	core.Resource
	path    *quick.Path
	quickly Quickly
}

// Enter returns an entry over a backend that has a quick path.
func Enter(backend core.Resource) *Entry {
	below := quick.Of(backend)
	e := &Entry{Resource: backend}
	e.path = below.Extend(e, below.Layer)
	return e
}

// Allocate allocates by the quick path, or by the backend.
func (e *Entry) Allocate(ctx context.Context, req core.Request) (b core.Block, err error) {
	if e.path.Allocate(ctx, &req, &b) {
		e.quickly.Allocations++
		return b, nil
	}
	e.quickly.DeclinedAllocations++
	return e.Resource.Allocate(ctx, req)
}

// Deallocate frees by the quick path, or by the backend.
func (e *Entry) Deallocate(ctx context.Context, id core.BlockID) (b core.Block, err error) {
	if e.path.Deallocate(ctx, &id, &b) {
		e.quickly.Frees++
		return b, nil
	}
	e.quickly.DeclinedFrees++
	return e.Resource.Deallocate(ctx, id)
}
