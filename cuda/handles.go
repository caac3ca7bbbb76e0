package cuda

import (
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/fence"
)

// What announce and open put into the handles of an intent, and nobody else looks
// at. A ticket ends only at the resource that gave it, so they are of this package.

// pointOf is the point of a launch.
func pointOf(in *core.Intent) *fence.Point { return in.Handle.(*fence.Point) }

// blockOf is the record of a block that a launch uses.
func blockOf(u *core.PreparedUse) *block { return u.Handle.(*block) }
