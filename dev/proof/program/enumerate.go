package program

import "slices"

// Bounds limit the programs that are made.
type Bounds struct {
	// Streams, Blocks and Ops are the most of each; blocks that were freed
	// count.
	Streams, Blocks, Ops int
	// Kinds are the kinds of operation to use.
	Kinds []Kind
	// Sizes are those of allocations, in units; none where sizes do not matter.
	Sizes []uint8
	// Single: a launch writes one block, and does nothing else.
	Single bool
}

// sizes are the units that an allocation may have.
func (b Bounds) sizes() []uint8 {
	if len(b.Sizes) == 0 {
		return []uint8{0}
	}
	return b.Sizes
}

func (b Bounds) has(k Kind) bool { return slices.Contains(b.Kinds, k) }

// Each calls yield with every program of from to b.Ops operations, until it
// returns false. Of programs that differ in the names of streams alone it makes
// one: streams are named in the order of their first use. Blocks have no
// names to exchange, as they are numbered by allocation. The program is valid
// during the call only.
func (b Bounds) Each(from int, yield func(Program) bool) {
	g := generator{Bounds: b, from: from, yield: yield}
	g.extend(state{})
}

// state is what is known after some operations.
type state struct {
	// used is how many streams were named, made how many blocks.
	used, made uint8
	live       Set
}

type generator struct {
	Bounds
	from    int
	yield   func(Program) bool
	program Program
}

// extend yields the program so far, and all longer ones. It returns false when
// it is to stop.
func (g *generator) extend(s state) bool {
	if n := len(g.program); n > 0 && n >= g.from && !g.yield(g.program) {
		return false
	}
	if len(g.program) == g.Ops {
		return true
	}
	more := true
	s.each(g.Bounds, func(o Op) bool {
		g.program = append(g.program, o)
		more = g.extend(s.after(o))
		g.program = g.program[:len(g.program)-1]
		return more
	})
	return more
}

// each calls yield with every operation that may come next.
func (s state) each(b Bounds, yield func(Op) bool) {
	for stream := range min(s.used+1, uint8(b.Streams)) {
		if !s.onStream(b, stream, yield) {
			return
		}
	}
	for block := range s.live.All() {
		if b.has(Free) && !yield(Op{Kind: Free, Block: block}) {
			return
		}
	}
}

func (s state) onStream(b Bounds, stream uint8, yield func(Op) bool) bool {
	if int(s.made) < b.Blocks {
		for _, units := range b.sizes() {
			if !yield(Op{Kind: Alloc, Stream: stream, Block: s.made, Units: units}) {
				return false
			}
		}
	}
	for _, kind := range []Kind{Sync, Reap, GiveUp} {
		if b.has(kind) && stream < s.used && !yield(Op{Kind: kind, Stream: stream}) {
			return false
		}
	}
	for block := range s.live.All() {
		for _, kind := range []Kind{Record, FaultyRecord} {
			if b.has(kind) && !yield(Op{Kind: kind, Stream: stream, Block: block}) {
				return false
			}
		}
	}
	return s.launches(b, func(o Op) bool { o.Stream = stream; return yield(o) })
}

// launches calls yield with every launch over live blocks: each is read,
// written or left alone, and not all are left alone.
func (s state) launches(b Bounds, yield func(Op) bool) bool {
	for writes := s.live; ; writes = (writes - 1) & s.live {
		rest := s.live &^ writes
		for reads := rest; ; reads = (reads - 1) & rest {
			for _, kind := range launches {
				if reads|writes != 0 && b.has(kind) && (!b.Single || reads == 0 && writes.Len() == 1) && !yield(Op{Kind: kind, Reads: reads, Writes: writes}) {
					return false
				}
			}
			if reads == 0 {
				break
			}
		}
		if writes == 0 {
			return true
		}
	}
}

// after is the state when an operation was added.
func (s state) after(o Op) state {
	switch o.Kind {
	case Alloc:
		s.live |= 1 << s.made
		s.made++
	case Free:
		s.live &^= 1 << o.Block
	}
	s.used = max(s.used, o.Stream+1)
	return s
}
