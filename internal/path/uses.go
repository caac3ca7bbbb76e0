package path

import (
	"context"

	"github.com/fencepost-gpu/fencepost/core"
)

// Uses are the calls about uses, of the next layer down that has something to do at
// them. They block where that layer does.
type Uses interface {
	// PrepareUse opens the intent of a launch.
	PrepareUse(context.Context, core.UseRequest) (core.Ticket, error)
	// FinishUse ends it behind the launch.
	FinishUse(context.Context, core.Ticket) error
	// AbortUse is for a launch that was not enqueued.
	AbortUse(context.Context, core.Ticket) error
	// RecordUse is for work that was enqueued unprepared.
	RecordUse(context.Context, core.BlockID, core.StreamID) error
}

// UsePasser is a layer that only passes the calls of [Uses] on, or is embedded in the resource that
// has them.
type UsePasser interface {
	// PassesUses returns the layer, and to whom it passes them; nil if it does not.
	PassesUses() (layer core.Resource, to Uses)
}

// UsesOf is whom a layer above r calls for uses: r, or who comes next beneath it if r
// would only pass them on. It is asked once, at construction. As in [Of], a decorator that embeds a layer is
// not taken for it.
func UsesOf(r core.Resource) Uses {
	if p, ok := r.(UsePasser); ok {
		if layer, to := p.PassesUses(); layer == r && to != nil {
			return to
		}
	}
	return r
}
