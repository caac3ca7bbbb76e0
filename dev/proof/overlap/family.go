package overlap

import (
	"fmt"
	"slices"

	"github.com/fencepost-gpu/fencepost/dev/proof/program"
)

// Family is programs of one kind: each of some set-ups, followed by goroutines
// of so many calls each, in every choice of the letters. Of programs that
// differ in the order of the goroutines alone it has one.
type Family struct {
	Name string
	// Shape is the number of calls of each goroutine.
	Shape       []int
	Preemptions int
	setups      []program.Program
	letters     func(setup program.Program) program.Program
	entered     bool
}

// latest stands for the block that the goroutine allocated last.
const latest = program.MaxBlocks - 1

// String is such as "pairs(1+1)<=2".
func (f *Family) String() string {
	text := ""
	for i, n := range f.Shape {
		if i > 0 {
			text += "+"
		}
		text += fmt.Sprint(n)
	}
	return fmt.Sprintf("%s(%s)<=%d", f.Name, text, f.Preemptions)
}

// Each calls yield with every program, until it returns false. The program is
// valid during the call only.
func (f *Family) Each(yield func(Program) bool) {
	for _, setup := range f.setups {
		words := map[int][]program.Program{}
		for _, n := range f.Shape {
			words[n] = f.words(setup, n)
		}
		g := generator{Family: f, words: words, program: Program{Setup: setup, Entered: f.entered}, yield: yield}
		if !g.extend(0) {
			return
		}
	}
}

// words are the sequences of n letters that one goroutine can take.
func (f *Family) words(setup program.Program, n int) []program.Program {
	words := []program.Program{nil}
	for range n {
		var longer []program.Program
		for _, w := range words {
			for _, c := range f.letters(setup) {
				if sensible(w, c) {
					longer = append(longer, append(slices.Clone(w), c))
				}
			}
		}
		words = longer
	}
	return words
}

// sensible reports whether a goroutine may take call c after others: not what
// it has freed or ended itself, and of its own allocations only what it has.
func sensible(before program.Program, c program.Op) bool {
	var own, gone program.Set
	for _, b := range before {
		switch b.Kind {
		case program.Alloc:
			own |= 1 << latest
		case program.Free:
			gone |= 1 << b.Block
		case program.Release:
			if c.Stream == Adopted {
				return false
			}
		case program.Finish, program.Cancel:
			if (c.Kind == program.Finish || c.Kind == program.Cancel) && c.Block == b.Block {
				return false
			}
		}
	}
	if c.Kind == program.Alloc {
		return own == 0
	}
	return c.Touches()&gone == 0 && c.Touches()&(1<<latest)&^own == 0
}

type generator struct {
	*Family
	words   map[int][]program.Program
	picked  []int
	program Program
	yield   func(Program) bool
}

func (g *generator) extend(thread int) bool {
	if thread == len(g.Shape) {
		p := g.program.named()
		return !p.allowed() || g.yield(p)
	}
	n := g.Shape[thread]
	from := 0
	if thread > 0 && g.Shape[thread-1] == n {
		from = g.picked[thread-1]
	}
	for i := from; i < len(g.words[n]); i++ {
		g.picked = append(g.picked[:thread], i)
		g.program.Threads = append(g.program.Threads[:thread], g.words[n][i])
		if !g.extend(thread + 1) {
			return false
		}
	}
	return true
}

// named gives the blocks that goroutines allocate their numbers.
func (p Program) named() Program {
	next := uint8(0)
	for _, c := range p.Setup {
		if c.Kind == program.Alloc {
			next++
		}
	}
	out := Program{Setup: p.Setup, Entered: p.Entered}
	for _, calls := range p.Threads {
		calls = slices.Clone(calls)
		for i := range calls {
			c := &calls[i]
			switch {
			case c.Kind == program.Alloc:
				c.Block = next
				next++
			case c.Block == latest && (c.Kind == program.Free || c.Kind == program.Record):
				c.Block = next - 1
			default:
				c.Reads, c.Writes = rename(c.Reads, next-1), rename(c.Writes, next-1)
			}
		}
		out.Threads = append(out.Threads, calls)
	}
	return out
}

func rename(s program.Set, as uint8) program.Set {
	if s.Has(latest) {
		return s&^(1<<latest) | 1<<as
	}
	return s
}

// allowed reports whether callers keep to their part: an open launch is ended
// once, and a use that is recorded afterwards is kept apart from others of that
// block by its caller.
func (p Program) allowed() bool {
	ended := map[uint8]bool{}
	for i, calls := range p.Threads {
		for _, c := range calls {
			switch c.Kind {
			case program.Finish, program.Cancel:
				if ended[c.Block] {
					return false
				}
				ended[c.Block] = true
			case program.Record:
				if p.contested(i, c) {
					return false
				}
			}
		}
	}
	return true
}

// contested reports whether another than goroutine own uses or frees the block
// of a recorded use, or gives back the lease that it is made under.
func (p Program) contested(own int, use program.Op) bool {
	for _, c := range p.Setup {
		if c.Kind == program.Open && c.Touches().Has(use.Block) {
			return true
		}
	}
	for i, calls := range p.Threads {
		for _, c := range calls {
			if i != own && (c.Touches().Has(use.Block) || c.Kind == program.Release && use.Stream == Adopted) {
				return true
			}
		}
	}
	return false
}
