package overlap

import (
	"strings"

	"github.com/fencepost-gpu/fencepost/dev/proof/program"
)

// Adopted is the stream that is an adopted one; those before it are leased.
const Adopted = 2

// Program is calls made one after the other, and then goroutines that make
// theirs at the same time. Blocks are numbered by their allocation in the text.
type Program struct {
	Setup   program.Program
	Threads []program.Program
	// Entered: a layer over the pool enters the quick path.
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

// all yields every call.
func (p Program) all(yield func(program.Op) bool) {
	for _, calls := range append([]program.Program{p.Setup}, p.Threads...) {
		for _, c := range calls {
			if !yield(c) {
				return
			}
		}
	}
}

// pooled reports whether the blocks are from the runtime's own pool.
func (p Program) pooled() bool { return p.has(func(c program.Op) bool { return c.Units > 0 }) }

// has reports whether there is a call of which that is true.
func (p Program) has(is func(program.Op) bool) bool {
	for c := range p.all {
		if is(c) {
			return true
		}
	}
	return false
}
