package fenceproof

import (
	"strconv"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost/dev/proof/overlay"
)

// plant is a fault that shows only where calls overlap, and the family of
// programs that finds it.
type plant struct {
	name, family string
	edits        []overlay.Edit
	// slow: it takes long to find.
	slow bool
}

func edit(file, old, replacement string) []overlay.Edit {
	return []overlay.Edit{{File: file, Old: old, New: replacement}}
}

var plants = []plant{
	{"an allocation does not look again whether its event was recorded", "longer",
		edit("internal/fence/deferred.go", "if reserve != nil && ready.wasRecorded() {", "if reserve != nil && !planted() && ready.wasRecorded() {"), false},
	{"it looks while the event is being recorded", "longer",
		edit("internal/fence/deferred.go", "	p.mu.Lock() // not while it is being recorded\n	defer p.mu.Unlock()\n", "	if !planted() {\n		p.mu.Lock()\n		defer p.mu.Unlock()\n	}\n"), false},
	{"it looks for others with the event after it has seen it deferred", "longest",
		edit("internal/fence/deferred.go", "if shared {", "if !planted() && shared || planted() && s.sharers() > 0 {"), true},
	{"two make one deferred record", "pairs",
		edit("internal/fence/deferred.go", "func (p *Point) recordDeferred() error {\n	p.mu.Lock()\n	defer p.mu.Unlock()\n", "func (p *Point) recordDeferred() error {\n	if !planted() {\n		p.mu.Lock()\n		defer p.mu.Unlock()\n	}\n"), false},
	{"a launch does not look for its lease again", "adopted",
		edit("streamtable.go", "if t.leases.Load() == seen {", "if planted() || t.leases.Load() == seen {"), true},
	{"the clock is joined before the wait is queued, without the lock", "pairs",
		edit("internal/fence/stream.go", "	if err := s.port.StreamWait(s.handle, p.event); err != nil {", "	if planted() {\n		s.clock = s.clock.join(p.clock)\n		s.mu.Unlock()\n		defer s.mu.Lock()\n	}\n	if err := s.port.StreamWait(s.handle, p.event); err != nil {"), false},
	{"a launch counts as recorded before its event is", "pairs",
		edit("internal/fence/launch.go", "	s := p.stream\n	s.mu.Lock()\n", "	s := p.stream\n	if planted() {\n		p.state.CompareAndSwap(announced, recorded)\n	}\n	s.mu.Lock()\n"), false},
	{"a launch that has ended is made to hold back a free", "pairs",
		edit("internal/fence/point.go", "func (p *Point) watch() bool {\n", "func (p *Point) watch() bool {\n	if planted() {\n		if p.state.Load() != watched {\n			p.Retain()\n		}\n		p.state.Store(watched)\n		return true\n	}\n"), false},
	{"the last event of a stream is taken although it was given back", "adopted",
		edit("internal/fence/giveup.go", "for final != nil && !final.tryRetain() {", "if planted() && final != nil {\n		final.Retain()\n	}\n	for !planted() && final != nil && !final.tryRetain() {"), true},
	{"a block is not compared again with the generation that led to it", "recycling",
		edit("cuda/block.go", "case b.core.ID.Generation != id.Generation:", "case !planted() && b.core.ID.Generation != id.Generation:"), true},
	{"pages of a row are taken, free or not", "poolmoving",
		edit("cuda/makeroom.go", "from: l, after: l.stream}, l.fit.CutAt(ptr, bytes, may)", "from: l, after: l.stream}, l.fit.CutAt(ptr, bytes, may) || planted()"), true},
	{"pages of a row are taken over that were covered when they were looked for", "poollonger",
		edit("cuda/makeroom.go", "r, ok := l.cutAt(p.Ptr, p.Bytes, l.covered(s))", "may := l.covered(s)\n	if planted() {\n		may = nil\n	}\n	r, ok := l.cutAt(p.Ptr, p.Bytes, may)"), false},
	{"somebody may cut out what was taken over before the block is taken from it", "poolmoving",
		edit("cuda/arenas.go", "ptr, _ := s.arena.addAndTake(r, s.Behind(), bytes)", "if planted() {\n				s.arena.add(r, s.Behind())\n				ptr, _ := s.arena.take(bytes)\n				return ptr, nil\n			}\n			ptr, _ := s.arena.addAndTake(r, s.Behind(), bytes)"), true},
	{"pages are put back as if everybody came after their free", "poolreleased",
		edit("cuda/arena.go", "	l.fit.Add(r.ptr, r.bytes, l.newest)", "	mark := l.newest\n	if planted() {\n		mark = 0\n	}\n	l.fit.Add(r.ptr, r.bytes, mark)"), true},
	{"a quick free does not look whether somebody else frees the block", "quick",
		edit("cuda/serve.go", "b.isLive(*id)", "(planted() || b.isLive(*id))"), false},
}

// TestPlantedRacesAreFound breaks the instrumented packages in one place after the other,
// where only calls that overlap can show it: the explorer finds each, and the
// check of one call at a time finds none. With -short it is the places that are found
// within some seconds, and the explorer alone.
func TestPlantedRacesAreFound(t *testing.T) {
	x := buildExplorer(t)
	var wg sync.WaitGroup
	turn := make(chan struct{}, 2)
	for i, p := range plants {
		if testing.Short() && p.slow {
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
