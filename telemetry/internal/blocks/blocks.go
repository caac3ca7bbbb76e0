// Package blocks lists the blocks of a stack as its layers know them together, and
// names their states.
package blocks

import (
	"iter"

	"github.com/fencepost-gpu/fencepost/core"
)

// Of are the blocks of the stack whose outermost layer is r: addresses and sizes
// as the innermost layer has them, which is what the device was asked for, states
// and call stacks as the outermost does, which is what callers were told. It makes
// no device call. Blocks that come or go meanwhile may be missed.
func Of(r core.Resource) iter.Seq[core.BlockInfo] {
	type told struct {
		state core.BlockState
		stack core.Stack
	}
	return func(yield func(core.BlockInfo) bool) {
		known := map[core.Generation]told{}
		r.Inspect().Blocks(func(b core.BlockInfo) bool {
			if b.AllocStack != nil || b.Block.State != core.Live {
				known[b.Block.ID.Generation] = told{b.Block.State, b.AllocStack}
			}
			return true
		})
		core.Base(r).Inspect().Blocks(func(b core.BlockInfo) bool {
			if t, ok := known[b.Block.ID.Generation]; ok {
				b.AllocStack = t.stack
				if b.Block.State == core.Live {
					b.Block.State = t.state
				}
			}
			return yield(b)
		})
	}
}

// StateName is the name of a state in what is exported: what a retired block holds
// is pending, as in [core.Stats].
func StateName(s core.BlockState) string {
	if s == core.Retired {
		return "pending"
	}
	return s.String()
}
