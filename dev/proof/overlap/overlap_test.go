package overlap

import (
	"maps"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/dev/proof/interleave"
	"github.com/fencepost-gpu/fencepost/dev/proof/program"
)

func TestWithoutTheOverlayNothingIsExplored(t *testing.T) {
	p := Program{Setup: program.Program{alloc(streamX, 0)}, Threads: []program.Program{{free(0)}, {launch(streamY, a, noBlock)}}}
	total := &Total{}
	if total.check(p, interleave.Test{Preemptions: 1}, nil); !strings.Contains(total.Failure, ErrNotInstrumented.Error()) || total.Steps != 0 {
		t.Errorf("%v", total)
	}
}

// floors are how many programs each family has at least, of the bounds by default and of the
// larger ones.
var floors = map[bool]map[string]int{
	false: {"pairs(1+1)<=2": 2553, "adopted(1+1)<=2": 313, "longer(2+1)<=2": 368, "longest(2+2)<=1": 1110, "recycling(3+1)<=1": 395, "triples(1+1+1)<=1": 247, "small(1+1)<=3": 18,
		"pool(1+1)<=1": 435, "poolgivenup(1+1)<=1": 178, "poollonger(2+1)<=1": 104, "poolmoving(1+1)<=2": 50, "poolreleased(2+1)<=2": 9, "quick(1+1)<=1": 313, "quickgivenup(1+1)<=1": 198, "quickagain(2+1)<=1": 396},
	true: {"pairs(1+1)<=2": 9230, "adopted(1+1)<=2": 7511, "longer(2+1)<=2": 8611, "longest(2+2)<=2": 2511, "recycling(3+1)<=2": 395, "triples(1+1+1)<=2": 247, "small(1+1)<=3": 804,
		"pool(1+1)<=1": 1684, "poolgivenup(1+1)<=2": 794, "poollonger(2+1)<=2": 6500, "poolmoving(1+1)<=2": 50, "poolreleased(2+1)<=2": 9, "quick(1+1)<=2": 725, "quickgivenup(1+1)<=2": 198, "quickagain(2+1)<=2": 1017},
}

// TestNoProgramIsMadeTwice looks at all programs of both bounds, those that
// differ in the order of the goroutines alone taken for one, and counts them.
func TestNoProgramIsMadeTwice(t *testing.T) {
	for _, all := range []bool{false, true} {
		left := maps.Clone(floors[all])
		for _, f := range Families(all) {
			seen := map[string]bool{}
			f.Each(func(p Program) bool {
				if len(p.Threads) != len(f.Shape) {
					t.Fatalf("%v: %v", f, p)
				}
				for i, n := range f.Shape {
					if len(p.Threads[i]) != n {
						t.Fatalf("%v: %v", f, p)
					}
				}
				if text := p.String(); seen[text] {
					t.Errorf("%v: made twice: %v", f, p)
				} else {
					seen[text] = true
				}
				return !t.Failed()
			})
			if floor := left[f.String()]; len(seen) < max(1, floor) {
				t.Errorf("%v has %d programs, and must have at least %d", f, len(seen), floor)
			}
			delete(left, f.String())
		}
		for name := range left {
			t.Errorf("there is no family %s", name)
		}
	}
}

// TestProgramsKeepToTheRulesOfCallers looks for what a program must not have:
// such calls are their caller's fault, whatever comes of them.
func TestProgramsKeepToTheRulesOfCallers(t *testing.T) {
	for _, f := range Families(true) {
		f.Each(func(p Program) bool {
			ends := map[uint8]int{}
			for _, calls := range p.Threads {
				for i, c := range calls {
					if c.Kind == program.Finish || c.Kind == program.Cancel {
						ends[c.Block]++
					}
					for _, before := range calls[:i] {
						if before.Kind == program.Free && c.Touches().Has(before.Block) {
							t.Errorf("%v: a block is used by who has freed it", p)
						}
					}
				}
			}
			for open, n := range ends {
				if n > 1 {
					t.Errorf("%v: launch %d is ended %d times", p, open, n)
				}
			}
			return !t.Failed()
		})
	}
}

func TestARefusalNeedsACause(t *testing.T) {
	reads, writes := launch(streamX, a, noBlock), launch(streamY, noBlock, a)
	for _, c := range []struct {
		other program.Op
		call  program.Op
		want  bool
	}{
		{writes, reads, true},
		{reads, writes, true},
		{reads, launch(streamY, a, noBlock), false},
		{launch(streamY, noBlock, b), reads, false},
		{launch(streamX, noBlock, a), reads, false},
		{on(program.Release, Adopted), launch(Adopted, a, noBlock), true},
		{use(program.Abort, Adopted, a, noBlock), on(program.Release, Adopted), true},
		{on(program.Release, Adopted), reads, false},
		{free(0), reads, false}, // that is no misuse
	} {
		if got := (Program{Threads: []program.Program{{c.call}, {c.other}}}).givesCause(c.call); got != c.want {
			t.Errorf("%v because of %v: %v, want %v", c.call, c.other, got, c.want)
		}
	}
}
