// Package activemutant says which mutant is active: which site, and which execution
// of it. The mutated copies of the instrumented packages import it, and nothing else of
// Fencepost does.
package activemutant

import (
	"fmt"
	"os"
	"slices"
	"sync/atomic"
)

var (
	names      []string
	executions []atomic.Int32
	site       atomic.Int32
	execution  atomic.Int32
)

// Variable is an environment variable with the name of a site, every execution
// of which goes wrong in a process that has it.
const Variable = "FENCEPOST_MUTANT"

// Register says what the sites are called, by number. A file that the overlay adds calls it before
// any site is executed.
func Register(all []string) {
	names, executions = all, make([]atomic.Int32, len(all))
	Disarm()
	if name := os.Getenv(Variable); name != "" {
		at := slices.Index(names, name)
		if at < 0 {
			panic(fmt.Sprintf("there is no mutant %q", name))
		}
		Arm(at, 0)
	}
}

// Sites is how many sites there are, 0 in a program that is built without the overlay.
func Sites() int { return len(names) }

// Arm makes execution k, from 1, of a site go wrong, or with 0 every one. The
// executions of all sites are counted anew.
func Arm(s, k int) {
	for i := range executions {
		executions[i].Store(0)
	}
	site.Store(int32(s))
	execution.Store(int32(k))
}

// Disarm makes nothing go wrong, and counts anew.
func Disarm() { Arm(-1, 0) }

// Executions is how often a site was executed since Arm or Disarm.
func Executions(s int) int { return int(executions[s].Load()) }

// At counts an execution of a site and reports whether it is to go wrong. The
// mutated code calls it where a site is.
func At(s int) bool {
	n := executions[s].Add(1)
	if s != int(site.Load()) {
		return false
	}
	k := execution.Load()
	return k == 0 || n == k
}
