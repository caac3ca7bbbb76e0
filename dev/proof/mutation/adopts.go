package mutation

// adoptSites are the end of adopted streams, and what comes after.
var adoptSites = []Site{
	{
		Name: "GiveUp: completed at once", File: "internal/fence/giveup.go", Func: "Stream.GiveUp",
		Wrong: "the work of a stream that was given up is believed to be done",
		Old:   "s.final.Store(final)",
		New:   "if mutated() {\n s.NoteCompleted(final.seq)\n }\n s.final.Store(final)",
	},
	{
		Name: "queueFreeBehind: the end is left out", File: "free.go", Func: "tracker.queueFreeBehind",
		Wrong: "a block of a stream that was given up is freed before the end of that stream",
		Old:   "plan.AddFinal(&s.Stream, final)",
		New:   "if !mutated() {\n plan.AddFinal(&s.Stream, final)\n }",
	},
	{
		Name: "queueFreeBehind: a reference is kept", File: "free.go", Func: "tracker.queueFreeBehind",
		Wrong: "the event at the end of a stream never comes back",
		Old:   "final.Release()",
		New:   "if !mutated() {\n final.Release()\n }",
	},
	{
		Name: "forget: before the device", File: "adopt.go", Func: "StreamPool.forget",
		Wrong: "a stream that was given up is forgotten while its work is not done",
		Old:   "err != nil || !done {",
		New:   "err != nil || !done && !mutated() {",
	},
	{
		Name: "DropFinalEvent: a reference is kept", File: "internal/fence/giveup.go", Func: "Stream.DropFinalEvent",
		Wrong: "the event at the end of a stream that was forgotten never comes back",
		Old:   "final.Release()",
		New:   "if !mutated() {\n final.Release()\n }",
	},
	{
		Name: "Remove: the slot begins anew", File: "internal/fence/order.go", Func: "Order.Remove",
		Wrong: "a stream in the slot of another has numbers that clocks claim to cover already",
		Old:   "o.free = append(o.free, freeSlot{slot: s.slot, seq: s.seq})",
		New:   "if mutated() {\n o.free = append(o.free, freeSlot{slot: s.slot})\n } else {\n o.free = append(o.free, freeSlot{slot: s.slot, seq: s.seq})\n }",
	},
}
