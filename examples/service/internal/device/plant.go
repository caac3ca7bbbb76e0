package device

import (
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/examples/service/kernels"
)

// plant is a bug to practise on-call work with: it is there only where somebody
// asked for it. Some sorts wipe their scratch column before they give it back,
// and count one value too many.
type plant struct {
	every uint64 // none if zero
	sorts atomic.Uint64
}

// roundedTo is what the runtime rounds blocks up to, in words.
const roundedTo = 64

// due reports whether this sort of n rows has the bug. One whose scratch column
// has nothing between it and its neighbour never has: the bug must be one that
// only a guard sees, and change nobody's result.
func (p *plant) due(n int) bool {
	return p.every > 0 && n%roundedTo != 0 && p.sorts.Add(1)%p.every == 0
}

// overrun is the bug.
func (e *Engine) overrun(j *fencepost.Job, scratch *column) error {
	tooMany := scratch.Len() + 1
	return j.Launch(e.kernels.Clear, kernels.Rows(tooMany), fencepost.Writes(scratch), fencepost.Value(uint32(tooMany)))
}
