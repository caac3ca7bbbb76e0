package mutation

// freeSites are the way of a block from its free to the end, unmapSites what is
// special about an isolated one, eventSites the way of an event.
var (
	freeSites = []Site{
		{
			Name: "blockFree: a launch is overlooked", File: "free.go", Func: "block.blockFree",
			Wrong: "a block is freed while a launch over it is open",
			Old:   "e.isOpen() && e.blockFree(b) {",
			New:   "e.isOpen() && !mutated() && e.blockFree(b) {",
		},
		{
			Name: "usedOnlyOn: used elsewhere", File: "free.go", Func: "block.usedOnlyOn",
			Wrong: "a block is freed without waiting for the uses of other streams",
			Old:   "b.accesses[i].event.stream != s {",
			New:   "b.accesses[i].event.stream != s && !mutated() {",
		},
		{
			Name: "freeBehind: a use is left out", File: "free.go", Func: "AsyncResource.freeBehind",
			Wrong: "a free does not wait for one of the uses",
			Old:   "f.add(s, &b.accesses[i], -1)",
			New:   "if b.accesses[i].event.stream == s || !mutated() {\n f.add(s, &b.accesses[i], -1)\n }",
		},
		{
			Name: "queueFree: the free goes first", File: "free.go", Func: "AsyncResource.queueFree",
			Wrong: "the waits of a free are queued behind it",
			Old:   "if f != nil {",
			New:   "if f != nil && len(f.deps) > 0 && mutated() {\n defer func(f *fence) {\n _ = f.queue(s, nil)\n }(f)\n f = nil\n }\n if f != nil {",
		},
		{
			Name: "enterFree: a reference is kept", File: "free.go", Func: "stream.enterFree",
			Wrong: "the event of a freed block's use never comes back",
			Old:   "b.accesses[i].event.release()",
			New:   "if !mutated() {\n b.accesses[i].event.release()\n }",
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
			Old:   "s.mark.release()",
			New:   "if s.marked < len(s.queue) && mutated() {\n s.marked = len(s.queue)\n }\n s.mark.release()",
		},
		{
			Name: "markQueue: completed at once", File: "reap.go", Func: "AsyncResource.markQueue",
			Wrong: "the mark behind the frees is believed to be completed as soon as it is recorded",
			Old:   "s.mark, s.marked = mark, len(s.queue)",
			New:   "if mutated() {\n s.noteCompleted(mark.seq)\n }\n s.mark, s.marked = mark, len(s.queue)",
		},
	}
	unmapSites = []Site{
		{
			Name: "free: an isolated block used elsewhere", File: "free.go", Func: "AsyncResource.free",
			Wrong: "a block is unmapped without waiting for the uses of other streams",
			Old:   "if last == nil && b.usedOnlyOn(s) {",
			New:   "if last == nil && (b.usedOnlyOn(s) || b.mapped > 0 && mutated()) {",
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
			Name: "end: the blocked frees are lost", File: "event.go", Func: "event.end",
			Wrong: "the end of a launch does not tell of the blocks whose free it blocked",
			Old:   "return blocked",
			New:   "if len(blocked) > 0 && mutated() {\n return nil\n }\n return blocked",
		},
		{
			Name: "releaseMany: back too early", File: "event.go", Func: "event.releaseMany",
			Wrong: "an event is used again while one reference on it is left",
			Old:   "if e.refs.Add(-n) == 0 {",
			New:   "if left := e.refs.Add(-n); left == 0 || left == 1 && mutated() {",
		},
	}
)
