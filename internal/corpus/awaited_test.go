package corpus

import "slices"

// culprits is the name in awaited of the cases whose culprit is not yet among
// three suspects.
const culprits = "culprits"

// fromDeclarations are the cases that the ledger is to see in what a launch or
// a record declares.
var fromDeclarations = []string{
	"wrong-block-argument", "launch-over-reused-pointer", "copy-from-stale-pointer",
	"read-before-any-write", "download-before-any-write", "copy-before-any-write", "read-after-aborted-write",
	"use-before-ready", "no-wait-at-all", "event-recorded-early", "event-reused-early", "wait-on-wrong-stream", "wait-queued-late",
	"default-stream-orders-nothing", "recorded-behind-a-writer",
	"missing-declaration", "missing-declaration-of-a-slice", "declared-through-the-wrong-view", "stale-lease",
}

// awaited lists, by tier, the expectations that the guard does not meet yet. A
// case that meets its one must leave the list, which the tests see to.
var awaited = map[string][]string{
	Tier0.Name: append([]string{"free-by-outside-pointer", "launch-over-stale-pointer"}, fromDeclarations...),
	Tier1.Name: fromDeclarations,
	Tier2.Name: append([]string{"write-then-restore"}, fromDeclarations...),
	culprits:   {"overrun-on-another-stream", "overrun-in-a-crowd"},
}

func awaits(r Result) bool { return r.Variant == WithBug && slices.Contains(awaited[r.Tier], r.Case) }
