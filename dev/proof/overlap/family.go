package overlap

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost-gpu/fencepost/dev/proof/program"
)

// Program is calls made one after the other, and then goroutines that make
// theirs at the same time. Blocks are numbered by their allocation in the text.
type Program struct {
	Setup   program.Program
	Threads []program.Program
	// Entered: allocations and frees may be served at once.
	Entered bool
}

// String is such as "alloc a on X | free a | launch on Y reading a".
func (p Program) String() string {
	parts := []string{p.Setup.String()}
	if p.Entered {
		parts[0] = "entered: " + parts[0]
	}
	for _, calls := range p.Threads {
		parts = append(parts, calls.String())
	}
	return strings.Join(parts, " | ")
}

// pooled reports whether the blocks are from the runtime's own pool.
func (p Program) pooled() bool { return p.has(func(o program.Op) bool { return o.Units > 0 }) }

// has reports whether there is a call of which that is true.
func (p Program) has(is func(program.Op) bool) bool {
	return slices.ContainsFunc(p.Setup, is) || slices.ContainsFunc(p.Threads, func(calls program.Program) bool { return slices.ContainsFunc(calls, is) })
}

// Family is programs of one kind: each of some set-ups, followed by goroutines
// of so many calls each, in every choice of the letters. Of programs that
// differ in the order of the goroutines alone it has one.
type Family struct {
	Name string
	// Shape is the number of calls of each goroutine.
	Shape []int
	bound
	entered bool
}

// bound says how much of a family is run.
type bound struct {
	Preemptions int
	setups      setups
	letters     func(known) program.Program
}

// String is such as "pairs(1+1)<=2".
func (f *Family) String() string {
	shape := strings.ReplaceAll(strings.Trim(fmt.Sprint(f.Shape), "[]"), " ", "+")
	return fmt.Sprintf("%s(%s)<=%d", f.Name, shape, f.Preemptions)
}

// Each calls yield with every program, until it returns false. The program is
// valid during the call only.
func (f *Family) Each(yield func(Program) bool) {
	for _, setup := range f.setups {
		letters := f.letters(after(setup))
		words := make([][]program.Program, len(f.Shape))
		for i, n := range f.Shape {
			words[i] = sequences(letters, n)
		}
		p := Program{Setup: setup, Threads: make([]program.Program, len(f.Shape)), Entered: f.entered}
		if !f.choose(p, words, 0, 0, yield) {
			return
		}
	}
}

// choose chooses what a goroutine does, and those behind it: of two that make as many calls the second
// has no word before that of the first.
func (f *Family) choose(p Program, words [][]program.Program, thread, from int, yield func(Program) bool) bool {
	if thread == len(f.Shape) {
		named := p.named()
		return !named.allowed() || yield(named)
	}
	if thread > 0 && f.Shape[thread] != f.Shape[thread-1] {
		from = 0
	}
	for i, word := range words[thread][from:] {
		p.Threads[thread] = word
		if !f.choose(p, words, thread+1, from+i, yield) {
			return false
		}
	}
	return true
}

// sequences are those of n letters that one goroutine can take.
func sequences(letters program.Program, n int) []program.Program {
	words := []program.Program{nil}
	for range n {
		var longer []program.Program
		for _, w := range words {
			for _, o := range letters {
				if sensible(w, o) {
					longer = append(longer, append(slices.Clone(w), o))
				}
			}
		}
		words = longer
	}
	return words
}

// sensible reports whether a goroutine may take call o after others: not what
// it has freed or ended itself, and of its own allocations only what it has.
func sensible(before program.Program, o program.Op) bool {
	var own, gone program.Set
	for _, b := range before {
		switch b.Kind {
		case program.Alloc:
			own = newest
		case program.Free:
			gone |= b.Touches()
		case program.Release:
			if o.Stream == Adopted {
				return false
			}
		case program.Finish, program.Cancel:
			if isEnd(o) && o.Block == b.Block {
				return false
			}
		}
	}
	if o.Kind == program.Alloc {
		return own == 0
	}
	return o.Touches()&(gone|newest&^own) == 0
}

func isEnd(o program.Op) bool { return o.Kind == program.Finish || o.Kind == program.Cancel }

// named gives the blocks that goroutines allocate their numbers.
func (p Program) named() Program {
	next := after(p.Setup).blocks
	out := Program{Setup: p.Setup, Entered: p.Entered}
	for _, calls := range p.Threads {
		calls = slices.Clone(calls)
		for i := range calls {
			o := &calls[i]
			switch {
			case o.Kind == program.Alloc:
				o.Block = next
				next++
			case o.Block == latest:
				o.Block = next - 1
			default:
				o.Reads, o.Writes = renamed(o.Reads, next-1), renamed(o.Writes, next-1)
			}
		}
		out.Threads = append(out.Threads, calls)
	}
	return out
}

func renamed(s program.Set, as uint8) program.Set {
	if s.Has(latest) {
		return s&^newest | 1<<as
	}
	return s
}

// allowed reports whether callers keep to their part: an open launch is ended
// once, and a use that is recorded afterwards is kept apart by its caller from other goroutines' uses and
// free of that block, and from the end of the lease that it is made under.
func (p Program) allowed() bool {
	for i, calls := range p.Threads {
		for _, o := range calls {
			contested := func(other program.Op) bool {
				switch {
				case isEnd(o):
					return isEnd(other) && other.Block == o.Block
				case o.Kind == program.Record:
					return other.Touches().Has(o.Block) || other.Kind == program.Release && o.Stream == Adopted
				}
				return false
			}
			for j, others := range p.Threads {
				if j != i && slices.ContainsFunc(others, contested) {
					return false
				}
			}
			if o.Kind == program.Record && slices.ContainsFunc(p.Setup, func(s program.Op) bool { return s.Kind == program.Open && s.Touches().Has(o.Block) }) {
				return false
			}
		}
	}
	return true
}
