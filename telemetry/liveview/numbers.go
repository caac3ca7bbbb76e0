package liveview

import "github.com/fencepost-gpu/fencepost/core"

func amountOf(a core.Amount) object {
	return object{"bytes", a.Bytes, "requested", a.Requested, "blocks", a.Blocks}
}

func memoryOf(st *core.Stats) object {
	return object{
		"live", amountOf(st.Live), "pending", amountOf(st.Pending), "quarantined", amountOf(st.Quarantined),
		"claimed", st.Claimed, "claims", st.Claims, "limit", st.Limit, "charged", st.Charged,
		"peak", st.PeakBytes, "pool_reserved", st.Reserved, "pool_used", st.PoolUsed, "pool_cached", st.Cached, "isolated", st.Isolated,
		"own_pool", ownPoolOf(&st.OwnPool),
	}
}

// ownPoolOf is nil where the pool is the driver's.
func ownPoolOf(p *core.OwnPoolStats) any {
	if !p.Present {
		return nil
	}
	return object{"fragmented", p.Fragmented, "limit", p.Limit}
}

func countersOf(st *core.Stats) object {
	return object{
		"allocations", st.Allocations, "deallocations", st.Deallocations, "failures", st.Failures, "refusals", st.Refusals,
		"launches", st.Launches, "cross_stream", st.CrossStream, "waits_queued", st.WaitsQueued, "waits_elided", st.WaitsElided,
		"open_intents", st.OpenIntents, "events", st.Events, "poisoned", st.Poisoned,
	}
}
