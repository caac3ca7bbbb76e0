package liveview

import "github.com/fencepost-gpu/fencepost/core"

type amount struct {
	Bytes     uint64 `json:"bytes"`
	Requested uint64 `json:"requested"`
	Blocks    uint64 `json:"blocks"`
}

type memory struct {
	Live        amount `json:"live"`
	Pending     amount `json:"pending"`
	Quarantined amount `json:"quarantined"`
	Claimed     uint64 `json:"claimed"`
	Claims      uint64 `json:"claims"`
	Limit       uint64 `json:"limit"`
	Charged     uint64 `json:"charged"`
	Peak        uint64 `json:"peak"`
	Reserved    uint64 `json:"pool_reserved"`
	Used        uint64 `json:"pool_used"`
	Isolated    uint64 `json:"isolated"`
}

type counters struct {
	Allocations   uint64 `json:"allocations"`
	Deallocations uint64 `json:"deallocations"`
	Failures      uint64 `json:"failures"`
	Refusals      uint64 `json:"refusals"`
	Launches      uint64 `json:"launches"`
	CrossStream   uint64 `json:"cross_stream"`
	WaitsQueued   uint64 `json:"waits_queued"`
	WaitsElided   uint64 `json:"waits_elided"`
	OpenIntents   uint64 `json:"open_intents"`
	Events        uint64 `json:"events"`
	Poisoned      uint64 `json:"poisoned"`
}

func memoryOf(st *core.Stats) memory {
	return memory{Live: amount(st.Live), Pending: amount(st.Pending), Quarantined: amount(st.Quarantined),
		Claimed: st.Claimed, Claims: st.Claims, Limit: st.Limit, Charged: st.Charged, Peak: st.PeakBytes,
		Reserved: st.Reserved, Used: st.PoolUsed, Isolated: st.Isolated}
}

func countersOf(st *core.Stats) counters {
	return counters{Allocations: st.Allocations, Deallocations: st.Deallocations, Failures: st.Failures, Refusals: st.Refusals,
		Launches: st.Launches, CrossStream: st.CrossStream, WaitsQueued: st.WaitsQueued, WaitsElided: st.WaitsElided,
		OpenIntents: st.OpenIntents, Events: st.Events, Poisoned: st.Poisoned}
}
