// Package toggle is the switch of the mutants: which site, and which execution
// of it. The mutated copies of the driven packages import it, and nothing else of
// Fencepost does.
package toggle

import (
	"os"
	"strconv"
	"sync/atomic"
)

// MaxSites is how many sites there may be.
const MaxSites = 128

var (
	executions [MaxSites]atomic.Int32
	site       atomic.Int32
	execution  atomic.Int32
)

// Variable is an environment variable with the number of a site, every execution
// of which goes wrong in a process that has it.
const Variable = "FENCEPOST_MUTANT"

func init() {
	Disarm()
	if s, err := strconv.Atoi(os.Getenv(Variable)); err == nil {
		Arm(s, 0)
	}
}

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
// mutated code calls it where a site's text says mutated().
func At(s int) bool {
	n := executions[s].Add(1)
	if s != int(site.Load()) {
		return false
	}
	k := execution.Load()
	return k == 0 || n == k
}
