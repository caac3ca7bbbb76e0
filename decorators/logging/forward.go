package logging

import "github.com/fencepost-gpu/fencepost/core"

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

// Unwrap is the upstream, for inspection only.
func (r *Resource) Unwrap() core.Resource { return r.upstream }

// Withhold passes on to an upstream that takes it.
func (r *Resource) Withhold(id core.BlockID, as core.BlockState) {
	core.WithholderOf(r.upstream).Withhold(id, as)
}
