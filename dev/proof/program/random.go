package program

// weights say how often Draw makes an operation of each kind that may come.
// Each program multiplies each of them by one of its factors, so that some have
// many allocations in a row, and some hardly a launch that is not aborted.
var weights = [kinds]int{Launch: 12, Alloc: 3, Free: 2, Record: 1, Abort: 2, Sync: 1, Reap: 2, Faulty: 1, FaultyRecord: 1, GiveUp: 1}

var factors = [...]int{1, 1, 3, 10}

// many is one launch in so many that may use any number of blocks; the others
// use a few.
const many, few = 6, 3

// Draw makes a program of b.Ops operations with numbers from 0 to n-1 that draw makes, such as a random
// source's, a property test's or those of a fuzzer's bytes: smaller ones make plainer programs. Every program
// within the bounds may come out, and larger ones have launches over few and over many blocks.
func Draw(b Bounds, draw func(n int) int) Program {
	var p Program
	var s state
	likely := weights
	for k := range likely {
		likely[k] *= factors[draw(len(factors))]
	}
	for len(p) < b.Ops {
		o, ok := s.random(draw, b, &likely)
		if !ok {
			break // all blocks were made and freed, and nothing else is to be done
		}
		p = append(p, o)
		s = s.after(o)
	}
	return p
}

func (s state) random(draw func(int) int, b Bounds, likely *[kinds]int) (Op, bool) {
	kind, ok := s.randomKind(draw, b, likely)
	if !ok {
		return Op{}, false
	}
	o := Op{Kind: kind}
	if kind == Alloc {
		o.Block = s.made
		if len(b.Sizes) > 0 {
			o.Units = b.Sizes[draw(len(b.Sizes))]
		}
	}
	if kind != Free {
		o.Stream = uint8(draw(b.Streams))
	}
	if o.IsLaunch() {
		o.Reads, o.Writes = s.randomUses(draw)
	}
	if kind == Free || o.IsRecord() {
		o.Block = s.liveBlock(draw(s.live.Len()))
	}
	return o, true
}

func (s state) randomKind(draw func(int) int, b Bounds, likely *[kinds]int) (Kind, bool) {
	weight := func(k Kind) int {
		switch {
		case k == Alloc:
			if int(s.made) == b.Blocks {
				return 0
			}
		case !b.has(k), s.live == 0 && k != Sync && k != Reap && k != GiveUp:
			return 0
		}
		return likely[k]
	}
	total := 0
	for k := range kinds {
		total += weight(k)
	}
	if total == 0 {
		return 0, false
	}
	left := draw(total)
	for k := range kinds {
		if left -= weight(k); left < 0 {
			return k, true
		}
	}
	return 0, false // not reached: the weights add up
}

// randomUses draws blocks, one at least, and what is done with each.
func (s state) randomUses(draw func(int) int) (reads, writes Set) {
	n := 1 + draw(min(few, s.live.Len()))
	if draw(many) == many-1 {
		n = 1 + draw(s.live.Len())
	}
	for range n {
		left := state{live: s.live &^ (reads | writes)}
		b := left.liveBlock(draw(left.live.Len()))
		if draw(2) == 0 {
			reads |= 1 << b
		} else {
			writes |= 1 << b
		}
	}
	return reads, writes
}

// liveBlock is the n-th live block.
func (s state) liveBlock(n int) uint8 {
	for b := range s.live.All() {
		if n == 0 {
			return b
		}
		n--
	}
	return 0 // not reached: some block is live
}

// Repeat is the program so many times in a row, each time with blocks of its
// own, which are freed before the next. It ends early where MaxBlocks are made.
func (p Program) Repeat(times int) Program {
	var all Program
	var first uint8 // of the blocks of a time
	for range times {
		var s state
		for _, o := range p {
			s = s.after(o)
			o.Block += first
			o.Reads, o.Writes = o.Reads<<first, o.Writes<<first
			all = append(all, o)
		}
		for b := range s.live.All() {
			all = append(all, Op{Kind: Free, Block: first + b})
		}
		if first += s.made; int(first)+int(s.made) > MaxBlocks {
			break
		}
	}
	return all
}
