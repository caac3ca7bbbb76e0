package proof

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost-gpu/fencepost/dev/proof/program"
)

// Phase is one step of an operation.
type Phase uint8

// The phases. Operations of one step have only Begin.
const (
	// Begin allocates, frees, synchronises, prepares a launch, or enqueues
	// a use that will be recorded.
	Begin Phase = iota
	// Enqueue puts the work of a launch on its stream.
	Enqueue
	// End finishes or aborts a launch, or records a use.
	End
	// Refused prepares a launch that must be refused, because a conflicting
	// one is open on another stream.
	Refused
)

// Step is one step of one operation.
type Step struct {
	Op    uint8
	Phase Phase
}

// Schedule is the steps of a program in the order in which its host
// goroutines take them.
type Schedule []Step

// String is such as "begin 0, begin 1, enqueue 1, end 1".
func (s Schedule) String() string {
	var parts []string
	for _, step := range s {
		name := [...]string{"begin", "enqueue", "end", "refused"}[step.Phase]
		parts = append(parts, fmt.Sprintf("%s %d", name, step.Op))
	}
	return strings.Join(parts, ", ")
}

// scheduler makes the schedules of a program: every interleaving of the steps
// of a few host goroutines, each of which takes the next operation when it has
// ended its last. Interleavings that differ only in the order of neighbours
// which have nothing in common are made once (sleep sets, Godefroid 1996);
// [Explorer.All] turns that off.
type scheduler struct {
	Explorer
	program program.Program
	yield   func(Schedule) bool
	steps   Schedule
	home    [program.MaxBlocks]uint8 // the allocation streams
	stopped bool
}

// maxOpen is the most goroutines that there may be.
const maxOpen = 4

// open is an operation that has begun.
type open struct {
	op    uint8
	phase Phase // the next
}

// moment is the state between two steps.
type moment struct {
	next    int // the operation to begin
	begun   [maxOpen]open
	n       int  // of begun
	refused bool // the next operation was tried, and refused
	freed   program.Set
}

func (m *moment) open() []open { return m.begun[:m.n] }

// footprint is what a step may touch: streams in the low bits, blocks above,
// and the allocator.
type footprint uint64

const (
	blockShift            = 16
	allocator   footprint = 1 << 63
	everything  footprint = 1<<64 - 1
	streamLimit           = blockShift
)

// sleepers are steps that were tried before, from a moment with which the
// present one has them in common.
type sleepers struct {
	all [maxOpen + 1]sleeper
	n   int
}

type sleeper struct {
	step    Step
	touches footprint
}

func (z *sleepers) add(step Step, touches footprint) {
	z.all[z.n] = sleeper{step, touches}
	z.n++
}

func (z *sleepers) has(step Step) bool {
	return slices.ContainsFunc(z.all[:z.n], func(s sleeper) bool { return s.step == step })
}

// Explorer explores the schedules of programs.
type Explorer struct {
	// Goroutines is how many of the host there are.
	Goroutines int
	// Engine: the steps are taken by the fence engine alone. It does not see work that is enqueued, so
	// launches have no step for that, and it allocates nothing, so allocations and frees have nothing in
	// common by the memory.
	Engine bool
	// All is without the reduction: every interleaving.
	All bool
}

// Each calls yield with the schedules of p, until it returns false. A schedule is valid during the
// call.
func (e Explorer) Each(p program.Program, yield func(Schedule) bool) {
	newScheduler(e, p, yield).explore(moment{}, sleepers{})
}

func newScheduler(e Explorer, p program.Program, yield func(Schedule) bool) *scheduler {
	s := &scheduler{Explorer: e, program: p, yield: yield}
	for _, o := range p {
		if o.Kind == program.Alloc {
			s.home[o.Block] = o.Stream
		}
	}
	return s
}

func (s *scheduler) explore(m moment, asleep sleepers) {
	if m.next == len(s.program) && m.n == 0 {
		s.stopped = !s.yield(s.steps)
		return
	}
	before := len(s.steps)
	if s.refusal(&m) {
		s.steps = append(s.steps, Step{uint8(m.next), Refused})
	}
	tried := len(s.steps)
	var steps [maxOpen + 1]Step
	for _, step := range s.enabled(&m, steps[:0]) {
		if asleep.has(step) {
			continue
		}
		touches := s.touches(&m, step)
		s.steps = append(s.steps, step)
		s.explore(s.after(m, step), s.still(&asleep, touches))
		s.steps = s.steps[:tried]
		if s.stopped {
			break
		}
		asleep.add(step, touches)
	}
	s.steps = s.steps[:before]
}

// still is who goes on sleeping when a step is taken: those whose steps have
// nothing in common with it.
func (s *scheduler) still(asleep *sleepers, touches footprint) (rest sleepers) {
	for i := range asleep.n {
		if z := asleep.all[i]; !s.All && z.touches&touches == 0 {
			rest.add(z.step, z.touches)
		}
	}
	return rest
}

// DrawSchedule draws one interleaving of p's steps for so many host goroutines, by numbers below n that draw
// makes.
func DrawSchedule(p program.Program, goroutines int, draw func(n int) int) Schedule {
	s := newScheduler(Explorer{Goroutines: goroutines}, p, nil)
	var m moment
	var buffer [maxOpen + 1]Step
	for m.next < len(p) || m.n > 0 {
		if s.refusal(&m) {
			s.steps = append(s.steps, Step{uint8(m.next), Refused})
		}
		enabled := s.enabled(&m, buffer[:0])
		step := enabled[draw(len(enabled))]
		s.steps = append(s.steps, step)
		m = s.after(m, step)
	}
	return s.steps
}
