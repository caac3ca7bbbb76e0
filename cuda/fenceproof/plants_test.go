package fenceproof

import (
	"strconv"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/proof/overlay"
)

// plant is a fault that shows only where calls overlap, and the family of
// programs that finds it.
type plant struct {
	name, family string
	edits        []overlay.Edit
}

func edit(file, old, replacement string) []overlay.Edit {
	return []overlay.Edit{{File: file, Old: old, New: replacement}}
}

var plants = []plant{
	{"an allocation does not look again whether its event was recorded", "longer",
		edit("readiness.go", "if reserve != nil && ready.wasRecorded() {", "if reserve != nil && !planted() && ready.wasRecorded() {")},
	{"it looks while the event is being recorded", "longer",
		edit("readiness.go", "	e.mu.Lock() // not while somebody records it\n	defer e.mu.Unlock()\n", "	if !planted() {\n		e.mu.Lock()\n		defer e.mu.Unlock()\n	}\n")},
	{"it looks for others with the event after it has seen it deferred", "longest",
		edit("readiness.go", "if shared {", "if !planted() && shared || planted() && e.refs.Load() > 1 {")},
	{"two make one deferred record", "pairs",
		edit("readiness.go", "func (e *event) recordDeferred() error {\n	e.mu.Lock()\n	defer e.mu.Unlock()\n", "func (e *event) recordDeferred() error {\n	if !planted() {\n		e.mu.Lock()\n		defer e.mu.Unlock()\n	}\n")},
	{"a launch does not look for its lease again", "adopted",
		edit("streamtable.go", "if t.leases.Load() != seen {", "if !planted() && t.leases.Load() != seen {")},
	{"the clock is joined before the wait is queued, without the lock", "pairs",
		edit("stream.go", "	if err := s.drv.StreamWait(s.handle, e.handle); err != nil {", "	if planted() {\n		s.clock = s.clock.join(e.clock)\n		s.mu.Unlock()\n		defer s.mu.Lock()\n	}\n	if err := s.drv.StreamWait(s.handle, e.handle); err != nil {")},
	{"a launch counts as recorded before its event is", "pairs",
		edit("finish.go", "	if in.Trace != nil {\n		noteSpans", "	if planted() {\n		e.state.CompareAndSwap(announced, placed)\n	}\n	if in.Trace != nil {\n		noteSpans")},
	{"a launch that has ended is made to hold back a free", "pairs",
		edit("event.go", "func (e *event) watch() bool {\n", "func (e *event) watch() bool {\n	if planted() {\n		e.state.Store(watched)\n		return true\n	}\n")},
	{"the last event of a stream is taken although it was given back", "adopted",
		edit("adopt.go", "for last != nil && !last.tryRetain() {", "if planted() && last != nil {\n		last.retain()\n	}\n	for !planted() && last != nil && !last.tryRetain() {")},
	{"a block is not compared again with the generation that led to it", "recycling",
		edit("block.go", "case b.core.ID.Generation != id.Generation:", "case !planted() && b.core.ID.Generation != id.Generation:")},
}

// TestPlantedRacesAreFound breaks package cuda in one place after the other,
// where only calls that overlap can show it: the explorer finds each, and the
// check of one call at a time finds none. With -short it is some of the places, and
// the explorer alone.
func TestPlantedRacesAreFound(t *testing.T) {
	x := buildExplorer(t, plants)
	var wg sync.WaitGroup
	turn := make(chan struct{}, 2)
	for i, p := range plants {
		if testing.Short() && i%4 != 0 {
			continue
		}
		number := []string{"-plant", strconv.Itoa(i + 1)}
		wg.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			if got := x.run(t, append(number, "-family", p.family)...); got.Failure == "" {
				t.Errorf("%s: not found by %v: %v", p.name, got.Bounds, got)
			} else {
				t.Logf("%s: found after %d programs: %v", p.name, got.Programs, got)
			}
			if testing.Short() {
				return
			}
			if got := x.run(t, append(number, "-sequential")...); got.Failure != "" {
				t.Errorf("%s: found one call at a time, too:\n%s", p.name, got.Failure)
			}
		})
	}
	wg.Wait()
}
