package overlap

import (
	"errors"
	"testing"
)

func TestWithoutTheOverlayNothingIsExplored(t *testing.T) {
	p := Program{Setup: []Call{alloc(streamX, 0)}, Threads: [][]Call{{free(0)}, {use(Launch, streamY, a, noBlock)}}}
	if result, err := Check(p, 1); !errors.Is(err, ErrNotDriven) || result.Steps != 0 {
		t.Errorf("%+v, %v", result, err)
	}
}

// TestNoProgramIsMadeTwice looks at all programs of both bounds, those that
// differ in the order of the goroutines alone taken for one.
func TestNoProgramIsMadeTwice(t *testing.T) {
	for _, all := range []bool{false, true} {
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
			t.Logf("%v: %d programs", f, len(seen))
			if len(seen) < 10 {
				t.Errorf("%v has %d programs", f, len(seen))
			}
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
					if c.Kind == Finish || c.Kind == Cancel {
						ends[c.Which]++
					}
					for _, before := range calls[:i] {
						if before.Kind == Free && c.uses().Has(before.Which) {
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
	reads, writes := use(Launch, streamX, a, noBlock), use(Launch, streamY, noBlock, a)
	for _, c := range []struct {
		other Call
		call  Call
		want  bool
	}{
		{writes, reads, true},
		{reads, writes, true},
		{reads, use(Launch, streamY, a, noBlock), false},
		{use(Launch, streamY, noBlock, b), reads, false},
		{use(Launch, streamX, noBlock, a), reads, false},
		{on(Release, Adopted), use(Launch, Adopted, a, noBlock), true},
		{use(Abort, Adopted, a, noBlock), on(Release, Adopted), true},
		{on(Release, Adopted), reads, false},
		{free(0), reads, false}, // that is no misuse
	} {
		if got := (Program{Threads: [][]Call{{c.call}, {c.other}}}).givesCause(c.call); got != c.want {
			t.Errorf("%v because of %v: %v, want %v", c.call, c.other, got, c.want)
		}
	}
}
