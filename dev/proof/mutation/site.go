package mutation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost-gpu/fencepost/dev/proof/mutation/toggle"
)

// Site is one place of the driven packages that can be made to go wrong.
type Site struct {
	// Name is the function, and what is changed in it, in short.
	Name string
	// Wrong says what is wrong with the mutant.
	Wrong string
	// File and Func are where the text stands: a file of the driven packages, by
	// its name or its path below the root, and a function's name in it, as in
	// "stream.wait" for a method, pointer or not.
	File, Func string
	// Old is found exactly once in that function. New takes its place, with
	// mutated() where the mutant decides: it is called once for each
	// execution that counts, and true if that is the one to go wrong.
	Old, New string
	// Most is how many executions there are to go wrong, if it is fewer than
	// Executions: the programs seldom come to more, or seldom show what goes wrong there.
	Most int
	// Equivalent says of executions, by number, why they cannot be noticed.
	Equivalent map[int]string
}

// Executions is how many executions of each site are made to go wrong in turn.
const Executions = 10

// How many sites there are, and mutants in whole, is written down so that a move of the
// code that loses one is noticed: what a site broke is then broken where it is now.
const (
	Places  = 104
	Mutants = 971
)

// Count is how many executions are made to go wrong in turn.
func (s *Site) Count() int {
	if s.Most > 0 {
		return s.Most
	}
	return Executions
}

// method is the name of the function without its type.
func (s *Site) method() string { return s.Func[strings.LastIndexByte(s.Func, '.')+1:] }

// Sites are all sites, by the number that they have at the switch.
func Sites() []Site {
	return slices.Concat(clockSites, streamSites, fenceSites, blockSites, readinessSites, useSites, freeSites, unmapSites, eventSites, adoptSites, poolSites, quickSites)
}

// check refuses a table that is too long, or in which two sites have one name.
func check(sites []Site) error {
	if len(sites) > toggle.MaxSites {
		return fmt.Errorf("%d sites are more than the switch has, which is %d", len(sites), toggle.MaxSites)
	}
	seen := map[string]bool{}
	for _, s := range sites {
		if seen[s.Name] {
			return fmt.Errorf("two sites are called %q", s.Name)
		}
		seen[s.Name] = true
	}
	return nil
}
