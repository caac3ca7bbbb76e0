package program

import "math/rand/v2"

// Random makes a program of b.Ops operations, with all of the streams and
// blocks in use most of the time. Sync, Abort and Record come seldom, where b
// has them at all.
func Random(rng *rand.Rand, b Bounds) Program { return Draw(b, rng.IntN) }

// Draw is Random with numbers below n that draw makes. Smaller numbers make
// simpler programs.
func Draw(b Bounds, draw func(n int) int) Program {
	var p Program
	var s state
	for len(p) < b.Ops {
		o, ok := s.random(draw, b)
		if !ok {
			break // no block is live, and none can be made
		}
		p = append(p, o)
		s = s.after(o)
	}
	return p
}

// random draws an operation that makes sense; false if there is none.
func (s state) random(draw func(int) int, b Bounds) (Op, bool) {
	o := Op{Stream: uint8(draw(b.Streams))}
	mayAlloc := int(s.made) < b.Blocks
	if s.live == 0 {
		o.Block = s.made
		return o, mayAlloc
	}
	switch roll := draw(40); {
	case roll < 6 && mayAlloc:
		o.Block = s.made
	case roll >= 36 && b.has(Free):
		return Op{Kind: Free, Block: s.anyBlock(draw)}, true
	case roll == 35 && b.has(Sync):
		o.Kind = Sync
	case roll == 34 && b.has(Record):
		o.Kind, o.Block = Record, s.anyBlock(draw)
	default:
		o.Kind = Launch
		if roll > 30 && b.has(Abort) {
			o.Kind = Abort
		}
		o.Reads, o.Writes = s.someUses(draw)
	}
	return o, true
}

func (s state) anyBlock(draw func(int) int) uint8 { return s.liveBlock(byte(draw(s.live.Len()))) }

// someUses draws uses of a few live blocks: one and some others, or in a sixth
// of all cases half of them.
func (s state) someUses(draw func(int) int) (reads, writes Set) {
	others := 8
	if draw(6) == 5 {
		others = 2
	}
	first := s.anyBlock(draw)
	for b := range s.live.All() {
		if b != first && draw(others) != others-1 {
			continue
		}
		if draw(2) == 0 {
			reads |= 1 << b
		} else {
			writes |= 1 << b
		}
	}
	return reads, writes
}
