package logging

import (
	"context"

	"github.com/fencepost-gpu/fencepost/core"
)

// The calls below change nothing and are not logged.

// String is "logging(upstream)".
func (r *Resource) String() string { return layerName + "(" + r.upstream.String() + ")" }

// Ordinal is the upstream's device.
func (r *Resource) Ordinal() int { return r.upstream.Ordinal() }

// Features is what the upstream can do: this layer narrows nothing.
func (r *Resource) Features() core.Features { return r.upstream.Features() }

// State is the upstream's answer.
func (r *Resource) State(id core.BlockID) core.BlockState { return r.upstream.State(id) }

// Stats is the upstream's answer. What the log itself lost is
// [Resource.Dropped].
func (r *Resource) Stats() core.Stats { return r.upstream.Stats() }

// FreedOn is the upstream's answer.
func (r *Resource) FreedOn(id core.StreamID) core.FreeCounters { return r.upstream.FreedOn(id) }

// Subscribe subscribes to the upstream, whose blocks are this layer's.
func (r *Resource) Subscribe(l core.Listener) { r.upstream.Subscribe(l) }

// Unwrap is the upstream.
func (r *Resource) Unwrap() core.Resource { return r.upstream }

// Withhold forwards.
func (r *Resource) Withhold(id core.BlockID, as core.BlockState) { r.upstream.Withhold(id, as) }

// CheckLive forwards.
func (r *Resource) CheckLive(ctx context.Context) error { return r.upstream.CheckLive(ctx) }

// Inspect is the upstream's.
func (r *Resource) Inspect() core.Inspector { return r.upstream.Inspect() }
