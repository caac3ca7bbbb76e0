package mutation

// useSites are the ways of a launch and of a recorded use.
var useSites = []Site{
	{
		Name: "announce: a reference too few", File: "uses.go", Func: "stream.announce",
		Wrong: "the event of a launch is used again while its blocks refer to it",
		Old:   "in.Handle = e",
		New:   "if in.Handle = e; mutated() {\n e.refs.Add(-1)\n }",
	},
	{
		Name: "announce: still deferred", File: "uses.go", Func: "stream.announce",
		Wrong: "the event of a launch counts as one of allocations that is to be recorded by who needs it, behind later work",
		Old:   "e.fence.sharersWritten, e.fence.sharedSeq = 0, 0",
		New:   "if e.fence.sharersWritten, e.fence.sharedSeq = 0, 0; mutated() {\n e.deferred.Store(true)\n }",
	},
	{
		Name: "announce: taken for placed", File: "uses.go", Func: "stream.announce",
		Wrong: "a launch that is open counts as a point of its stream, the one that its event was before",
		Old:   "e.state.Store(announced)",
		New:   "if e.state.Store(announced); mutated() {\n e.state.Store(placed)\n }",
	},
	{
		Name: "open: references on refusal", File: "uses.go", Func: "AsyncResource.open",
		Wrong: "the event of a launch that was refused never comes back",
		Old:   "b.mu.Unlock()\n\t\t\te.releaseMany(int32(len(in.Uses) - i))",
		New:   "b.mu.Unlock()\n if !mutated() {\n e.releaseMany(int32(len(in.Uses) - i))\n }",
	},
	{
		Name: "queueWaits: allocations are not flushed", File: "uses.go", Func: "AsyncResource.queueWaits",
		Wrong: "the readiness of allocations is recorded behind a launch's work",
		Old:   "if !s.coveredBy(f) {",
		New:   "if !s.coveredBy(f) && !mutated() {",
	},
	{
		Name: "queueWaits: none at all", File: "uses.go", Func: "AsyncResource.queueWaits",
		Wrong: "a launch waits for nothing",
		Old:   "if len(f.deps) == 0 {",
		New:   "if len(f.deps) == 0 || mutated() {",
	},
	{
		Name: "AbortUse: as if launched", File: "uses.go", Func: "AsyncResource.AbortUse",
		Wrong: "a launch that was aborted counts as the point that its event was before",
		Old:   "r.endLaunch(in, withdrawn)",
		New:   "if mutated() {\n r.endLaunch(in, placed)\n return nil\n }\n r.endLaunch(in, withdrawn)",
	},
	{
		Name: "RecordUse: forgotten", File: "uses.go", Func: "AsyncResource.RecordUse",
		Wrong: "a use that was recorded is not ordered before anything",
		Old:   "if e != nil {\n\t\tb.addRecordedUse(",
		New:   "if e != nil && mutated() {\n } else if e != nil {\n b.addRecordedUse(",
	},
	{
		Name: "RecordUse: taken for a read", File: "uses.go", Func: "AsyncResource.RecordUse",
		Wrong: "a reader does not wait for a use that was recorded and may have written",
		Old:   "kind: core.ReadWrite}",
		New:   "kind: func() core.Access {\n if mutated() {\n return core.Read\n }\n return core.ReadWrite\n }()}",
	},
	{
		Name: "finish: no event", File: "finish.go", Func: "AsyncResource.finish",
		Wrong: "a launch ends and its event is where it was the last time",
		Old:   "err := s.recordIn(e)",
		New:   "var err error\n if mutated() {\n s.place(e)\n } else {\n err = s.recordIn(e)\n }",
	},
	{
		Name: "endLaunch: a block is freed under another launch", File: "finish.go", Func: "AsyncResource.endLaunch",
		Wrong: "the first launch to end frees a retired block, not the last",
		Old:   "b.blockers == 0 &&",
		New:   "(b.blockers == 0 || mutated()) &&",
	},
	{
		Name: "endLaunch: a retired block is left", File: "finish.go", Func: "AsyncResource.endLaunch",
		Wrong: "a block whose free was held back is never freed",
		Old:   "if due {",
		New:   "if due && !mutated() {",
	},
	{
		Name: "endLaunch: a reference is kept", File: "finish.go", Func: "AsyncResource.endLaunch",
		Wrong: "the event of a launch never comes back",
		Old:   "e.release()",
		New:   "if !mutated() {\n e.release()\n }",
	},
	{
		Name: "finishUnrecorded: a place to come", File: "finish.go", Func: "AsyncResource.finishUnrecorded",
		Wrong: "a launch whose event was refused counts as a point that its stream has not come to",
		Old:   "e.seq = s.completed.Load()",
		New:   "if e.seq = s.completed.Load(); mutated() {\n e.seq += 2\n }",
	},
	{
		Name: "fenceBySync: not synchronised", File: "finish.go", Func: "AsyncResource.fenceBySync",
		Wrong: "a launch whose event was refused counts as done and may still be running",
		Old:   "syncErr := r.drv.StreamSynchronize(s.handle)",
		New:   "var syncErr error\n if !mutated() {\n syncErr = r.drv.StreamSynchronize(s.handle)\n }",
	},
}
