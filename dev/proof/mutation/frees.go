package mutation

// freeSites are the way of a block from its free to the end, unmapSites what is
// special about an isolated one, eventSites the way of an event.
var (
	freeSites = []Site{
		{
			Name: "Watch: a launch is overlooked", File: "internal/fence/history.go", Func: "History.Watch",
			Wrong: "a block is freed while a launch over it is open",
			Old:   "p.IsOpen() && p.watch() {",
			New:   "p.IsOpen() && !mutated() && p.watch() {",
		},
		{
			Name: "UsedOnlyOn: used elsewhere", File: "internal/fence/history.go", Func: "History.UsedOnlyOn",
			Wrong: "a block is freed without waiting for the uses of other streams",
			Old:   "h.accesses[i].point.stream != s {",
			New:   "h.accesses[i].point.stream != s && !mutated() {",
		},
		{
			Name: "PlanFree: a use is left out", File: "internal/fence/history.go", Func: "History.PlanFree",
			Wrong: "a free does not wait for one of the uses",
			Old:   "plan.add(s, &h.accesses[i], -1)",
			New:   "if h.accesses[i].point.stream == s || !mutated() {\n plan.add(s, &h.accesses[i], -1)\n }",
		},
		{
			Name: "queueFreeLocked: the free goes first", File: "free.go", Func: "tracker.queueFreeLocked",
			Wrong: "the waits of a free are queued behind it",
			Old:   "if plan != nil {",
			New:   "if plan != nil && mutated() {\n defer func(plan *fence.Plan) {\n _ = plan.QueueFree(&s.Stream)\n }(plan)\n plan = nil\n }\n if plan != nil {",
		},
		{
			Name: "Release: a reference is kept", File: "internal/fence/history.go", Func: "History.Release",
			Wrong: "the event of a freed block's use never comes back",
			Old:   "h.accesses[i].point.Release()",
			New:   "if !mutated() {\n h.accesses[i].point.Release()\n }",
		},
		{
			Name: "lookAtMark: before the device", File: "reap.go", Func: "tracker.lookAtMark",
			Wrong: "a block is called reusable while its free is still queued",
			Old:   "err != nil || !done {",
			New:   "err != nil || !done && !mutated() {",
		},
		{
			Name: "markCompleted: the mark lies before the free", File: "freequeue.go", Func: "freeQueue.markCompleted",
			Wrong: "a block is called reusable whose free was queued behind the mark that was completed",
			Old:   "q.mark.Release()",
			New:   "if all := int(q.pendingFrees()); q.marked < all && mutated() {\n q.marked = all\n }\n q.mark.Release()",
		},
		{
			Name: "lookAtMark: completed at once", File: "reap.go", Func: "tracker.lookAtMark",
			Wrong: "the mark behind the frees is believed to be completed as soon as it is recorded",
			Old:   "s.frees.markAll(mark)",
			New:   "if mutated() {\n s.NoteCompleted(s.Seq())\n }\n s.frees.markAll(mark)",
		},
	}
	unmapSites = []Site{
		{
			Name: "queueFree: an isolated block used elsewhere", File: "free.go", Func: "tracker.queueFree",
			Wrong: "a block is unmapped without waiting for the uses of other streams",
			Old:   "if final == nil && b.history.UsedOnlyOn(&s.Stream) {",
			New:   "if final == nil && (b.history.UsedOnlyOn(&s.Stream) || b.isIsolated() && mutated()) {",
		},
		{
			Name: "setAside: an isolated block goes on", File: "freequeue.go", Func: "freeQueue.setAside",
			Wrong: "a block is called gone while it is mapped, and nobody unmaps it",
			Old:   "if p.block.isIsolated() {",
			New:   "if p.block.isIsolated() && !mutated() {",
		},
	}
	eventSites = []Site{
		{
			Name: "end: the blocked frees are lost", File: "internal/fence/point.go", Func: "Point.end",
			Wrong: "the end of a launch does not tell that retired blocks waited for it",
			Old:   "return true",
			New:   "return !mutated()",
		},
		{
			Name: "ReleaseMany: back too early", File: "internal/fence/point.go", Func: "Point.ReleaseMany",
			Wrong: "an event is used again while one reference on it is left",
			Old:   "if p.refs.Add(-n) == 0 {",
			New:   "if left := p.refs.Add(-n); left == 0 || left == 1 && mutated() {",
		},
	}
)
