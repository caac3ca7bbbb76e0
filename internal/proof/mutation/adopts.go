package mutation

// adoptSites are the end of adopted streams, and what comes after.
var adoptSites = []Site{
	{
		Name: "giveUp: completed at once", File: "adopt.go", Func: "StreamPool.giveUp",
		Wrong: "the work of a stream that was given up is believed to be done",
		Old:   "s.finalPoint.Store(last)",
		New:   "if mutated() {\n s.noteCompleted(last.seq)\n }\n s.finalPoint.Store(last)",
	},
	{
		Name: "freeBehind: the end is left out", File: "free.go", Func: "AsyncResource.freeBehind",
		Wrong: "a block of a stream that was given up is freed before the end of that stream",
		Old:   "f.add(s, &access{event: last}, -1)",
		New:   "if !mutated() {\n f.add(s, &access{event: last}, -1)\n }",
	},
	{
		Name: "freeBehind: a reference is kept", File: "free.go", Func: "AsyncResource.freeBehind",
		Wrong: "the event at the end of a stream never comes back",
		Old:   "last.release()",
		New:   "if !mutated() {\n last.release()\n }",
	},
	{
		Name: "retire: before the device", File: "adopt.go", Func: "StreamPool.retire",
		Wrong: "a stream that was given up is forgotten while its work is not done",
		Old:   "err != nil || !done {",
		New:   "err != nil || !done && !mutated() {",
	},
	{
		Name: "letGo: a reference is kept", File: "adopt.go", Func: "stream.letGo",
		Wrong: "the event at the end of a stream that was forgotten never comes back",
		Old:   "last.release()",
		New:   "if !mutated() {\n last.release()\n }",
	},
	{
		Name: "remove: the slot begins anew", File: "streamtable.go", Func: "streamTable.remove",
		Wrong: "a stream in the slot of another has numbers that clocks claim to cover already",
		Old:   "t.free = append(t.free, freeSlot{slot: s.slot, seq: s.seq})",
		New:   "if mutated() {\n t.free = append(t.free, freeSlot{slot: s.slot})\n } else {\n t.free = append(t.free, freeSlot{slot: s.slot, seq: s.seq})\n }",
	},
}
