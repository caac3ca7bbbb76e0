package proof

import "github.com/fencepost-gpu/fencepost/dev/proof/program"

// enabled adds the steps that may be taken.
func (s *scheduler) enabled(m *moment, steps []Step) []Step {
	for _, o := range m.open() {
		steps = append(steps, Step{o.op, o.phase})
	}
	if m.next < len(s.program) && m.n < s.Goroutines && !s.blocked(m) {
		steps = append(steps, Step{uint8(m.next), Begin})
	}
	return steps
}

// blocked reports whether the next operation must wait for another: a launch
// for a conflicting one of another stream, the end of a lease for what is open
// on its stream, and whatever touches a block for
// the recording of a use of it, which is its caller's to see to.
func (s *scheduler) blocked(m *moment) bool {
	next := s.program[m.next]
	for _, o := range m.open() {
		other := s.program[o.op]
		switch {
		case next.Kind == program.GiveUp:
			if other.Stream == next.Stream {
				return true
			}
		case other.IsRecord() && next.Kind == program.Free:
			if next.Block == other.Block {
				return true
			}
		case (next.IsRecord() || other.IsRecord()) && next.Conflicts(other):
			return true
		case next.IsLaunch() && next.Stream != other.Stream && next.Conflicts(other):
			return true
		}
	}
	return false
}

// refusal reports whether the next launch is to be tried now, once, for being
// refused.
func (s *scheduler) refusal(m *moment) bool {
	if m.refused || m.next == len(s.program) || !s.program[m.next].IsLaunch() {
		return false
	}
	next := s.program[m.next]
	for _, o := range m.open() {
		if other := s.program[o.op]; other.IsLaunch() && next.Stream != other.Stream && next.Conflicts(other) {
			m.refused = true
			return true
		}
	}
	return false
}

// after is the moment after a step.
func (s *scheduler) after(m moment, step Step) moment {
	o := s.program[step.Op]
	switch step.Phase {
	case Begin:
		m.next++
		m.refused = false
		if o.Kind == program.Free {
			m.freed |= 1 << o.Block
		}
		if phases := Phases(o.Kind); len(phases) > 1 {
			next := phases[1]
			if s.Engine {
				next = End
			}
			m.begun[m.n] = open{step.Op, next}
			m.n++
		}
	case Enqueue:
		m.begun[m.find(step.Op)].phase = End
	case End:
		m.n--
		m.begun[m.find(step.Op)] = m.begun[m.n]
	}
	return m
}

// find is the place of an open operation.
func (m *moment) find(op uint8) int {
	for i := range m.begun {
		if m.begun[i].op == op {
			return i
		}
	}
	return 0 // not reached: it is open
}

// Phases are the steps of an operation.
func Phases(k program.Kind) []Phase {
	switch k {
	case program.Launch, program.Faulty:
		return threePhases[:]
	case program.Abort, program.Record, program.FaultyRecord:
		return twoPhases[:]
	default:
		return threePhases[:1]
	}
}

var (
	threePhases = [...]Phase{Begin, Enqueue, End}
	twoPhases   = [...]Phase{Begin, End}
)

// isSync reports whether the host learns of any stream what it has done;
// isFaulty that it does so at the end, because an event was refused.
func isSync(k program.Kind) bool   { return k == program.Sync || k == program.Reap }
func isFaulty(k program.Kind) bool { return k == program.Faulty || k == program.FaultyRecord }

// touches is what a step may touch. Beside its own stream and blocks that is
// the streams where those were allocated: their readiness may be recorded
// there, and they are freed there. Work that is merely enqueued touches its
// stream; the end of the last launch over a freed block frees it. An allocation that has
// a size may have memory of any stream.
func (s *scheduler) touches(m *moment, step Step) footprint {
	t := s.mayTouch(m, step)
	if s.Engine && t != everything {
		t &^= allocator
	}
	return t
}

func (s *scheduler) mayTouch(m *moment, step Step) footprint {
	o := s.program[step.Op]
	if isSync(o.Kind) || o.Kind == program.GiveUp || step.Phase == End && isFaulty(o.Kind) {
		return everything
	}
	if step.Phase == Enqueue {
		return 1 << o.Stream
	}
	var t footprint
	blocks := o.Uses()
	switch o.Kind {
	case program.Alloc:
		if o.Units > 0 {
			return everything
		}
		return 1<<o.Stream | 1<<(blockShift+o.Block) | allocator
	case program.Free:
		blocks = 1 << o.Block
		t = allocator
	default:
		t = 1 << o.Stream
	}
	for b := range blocks.All() {
		t |= 1<<s.home[b] | 1<<(blockShift+b)
	}
	if blocks&m.freed != 0 {
		t |= allocator
	}
	return t
}
