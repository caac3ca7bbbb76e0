package mutation

// freeSites are the way of a block from its free to the end, unmapSites what is
// special about an isolated one, eventSites the way of an event.
var (
	freeSites = []Site{
		{
			Name: "Watch: a launch is overlooked", File: "internal/fence/history.go", Func: "History.Watch",
			Wrong: "a block is freed while a launch over it is open",
			Old:   "p.IsOpen() && p.tell(w) {",
			New:   "p.IsOpen() && !mutated() && p.tell(w) {",
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
			Name: "queueFree: the free goes first", File: "free.go", Func: "AsyncResource.queueFree",
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
			Name: "collectCompleted: before the device", File: "reap.go", Func: "AsyncResource.collectCompleted",
			Wrong: "a block is called reusable while its free is still queued",
			Old:   "err != nil || !done {",
			New:   "err != nil || !done && !mutated() {",
		},
		{
			Name: "collectCompleted: the mark lies before the free", File: "reap.go", Func: "AsyncResource.collectCompleted",
			Wrong: "a block is called reusable whose free was queued behind the mark that was completed",
			Old:   "s.mark.Release()",
			New:   "if s.marked < len(s.queue) && mutated() {\n s.marked = len(s.queue)\n }\n s.mark.Release()",
		},
		{
			Name: "markQueue: completed at once", File: "reap.go", Func: "AsyncResource.markQueue",
			Wrong: "the mark behind the frees is believed to be completed as soon as it is recorded",
			Old:   "s.mark, s.marked = mark, len(s.queue)",
			New:   "if mutated() {\n s.NoteCompleted(s.Seq())\n }\n s.mark, s.marked = mark, len(s.queue)",
		},
	}
	unmapSites = []Site{
		{
			Name: "free: an isolated block used elsewhere", File: "free.go", Func: "AsyncResource.free",
			Wrong: "a block is unmapped without waiting for the uses of other streams",
			Old:   "if last == nil && b.history.UsedOnlyOn(&s.Stream) {",
			New:   "if last == nil && (b.history.UsedOnlyOn(&s.Stream) || b.mapped > 0 && mutated()) {",
		},
		{
			Name: "setAside: an isolated block goes on", File: "unmap.go", Func: "AsyncResource.setAside",
			Wrong: "a block is called gone while it is mapped, and nobody unmaps it",
			Old:   "if p.isolated == 0 {",
			New:   "if p.isolated == 0 || mutated() {",
		},
	}
	eventSites = []Site{
		{
			Name: "end: the blocked frees are lost", File: "internal/fence/point.go", Func: "Point.end",
			Wrong: "the end of a launch does not tell of the blocks whose free it blocked",
			Old:   "return waiters",
			New:   "if len(waiters) > 0 && mutated() {\n return nil\n }\n return waiters",
		},
		{
			Name: "releaseMany: back too early", File: "internal/fence/point.go", Func: "Point.releaseMany",
			Wrong: "an event is used again while one reference on it is left",
			Old:   "p.refs.Add(-n) == 0 &&",
			New:   "func(left int32) bool {\n return left == 0 || left == 1 && mutated()\n }(p.refs.Add(-n)) &&",
		},
	}
)
