package cuda

import "github.com/fencepost-gpu/fencepost/core"

// What announce and open put into the handles of an intent, and nobody else looks
// at. A ticket ends only at the resource that gave it, so they are of this package.

// pointOf is the point of a launch.
func pointOf(in *core.Intent) *event { return in.Handle.(*event) }

// blockOf is the record of a block that a launch uses.
func blockOf(u *core.PreparedUse) *block { return u.Handle.(*block) }
