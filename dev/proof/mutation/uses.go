package mutation

// useSites are the ways of a launch and of a recorded use.
var useSites = []Site{
	{
		Name: "Announce: a reference too few", File: "internal/fence/launch.go", Func: "Stream.Announce",
		Wrong: "the event of a launch is used again while its blocks refer to it",
		Old:   "p.endsAs = recorded",
		New:   "if p.endsAs = recorded; mutated() {\n p.refs.Add(-1)\n }",
	},
	{
		Name: "Announce: still deferred", File: "internal/fence/launch.go", Func: "Stream.Announce",
		Wrong: "the event of a launch counts as one of allocations that is to be recorded by who needs it, behind later work",
		Old:   "p.plan.sharersWritten, p.plan.sharedSeq = 0, 0",
		New:   "p.plan.sharersWritten, p.plan.sharedSeq = 0, 0\n if mutated() {\n defer p.state.Store(deferred)\n }",
	},
	{
		Name: "Announce: taken for placed", File: "internal/fence/launch.go", Func: "Stream.Announce",
		Wrong: "a launch that is open counts as a point of its stream, the one that its event was before",
		Old:   "p.state.Store(announced)",
		New:   "if p.state.Store(announced); mutated() {\n p.state.Store(recorded)\n }",
	},
	{
		Name: "announceOnBlocks: references on refusal", File: "uses.go", Func: "tracker.announceOnBlocks",
		Wrong: "the event of a launch that was refused never comes back",
		Old:   "b.mu.Unlock()\n\t\t\tp.ReleaseMany(int32(len(in.Uses) - i))",
		New:   "b.mu.Unlock()\n if !mutated() {\n p.ReleaseMany(int32(len(in.Uses) - i))\n }",
	},
	{
		Name: "queueWaits: allocations are not flushed", File: "internal/fence/launch.go", Func: "Stream.queueWaits",
		Wrong: "the readiness of allocations is recorded behind a launch's work",
		Old:   "if !s.coveredBy(plan) {",
		New:   "if !s.coveredBy(plan) && !mutated() {",
	},
	{
		Name: "queueWaits: none at all", File: "internal/fence/launch.go", Func: "Stream.queueWaits",
		Wrong: "a launch waits for nothing",
		Old:   "if len(plan.deps) == 0 {",
		New:   "if len(plan.deps) == 0 || mutated() {",
	},
	{
		Name: "AbortUse: as if launched", File: "uses.go", Func: "tracker.AbortUse",
		Wrong: "a launch that was aborted counts as the point that its event was before",
		Old:   "p.Withdraw()",
		New:   "if !mutated() {\n p.Withdraw()\n }",
	},
	{
		Name: "RecordUse: forgotten", File: "uses.go", Func: "tracker.RecordUse",
		Wrong: "a use that was recorded is not ordered before anything",
		Old:   "if p != nil {\n\t\tb.history.AddRecorded(",
		New:   "if p != nil && mutated() {\n } else if p != nil {\n b.history.AddRecorded(",
	},
	{
		Name: "AddRecorded: taken for a read", File: "internal/fence/history.go", Func: "History.AddRecorded",
		Wrong: "a reader does not wait for a use that was recorded and may have written",
		Old:   "kind: core.ReadWrite}",
		New:   "kind: func() core.Access {\n if mutated() {\n return core.Read\n }\n return core.ReadWrite\n }()}",
	},
	{
		Name: "Finish: no event", File: "internal/fence/launch.go", Func: "Point.Finish",
		Wrong: "a launch ends and its event is where it was the last time",
		Old:   "err := s.recordAt(p); err != nil",
		New:   "mutated() {\n s.place(p)\n } else if err := s.recordAt(p); err != nil",
	},
	{
		Name: "mayBeFreed: a block is freed under another launch", File: "free.go", Func: "block.mayBeFreed",
		Wrong: "the first launch to end frees a retired block, not the last",
		Old:   "b.history.HasOpen() {",
		New:   "b.history.HasOpen() && !mutated() {",
	},
	{
		Name: "launchEnded: a retired block is left", File: "free.go", Func: "tracker.launchEnded",
		Wrong: "a block whose free was held back is never freed",
		Old:   "if !b.mayBeFreed() {",
		New:   "if !b.mayBeFreed() || mutated() {",
	},
	{
		Name: "End: a reference is kept", File: "internal/fence/launch.go", Func: "Point.End",
		Wrong: "the event of a launch never comes back",
		Old:   "p.Release()",
		New:   "if !mutated() {\n p.Release()\n }",
	},
	{
		Name: "FinishUnrecorded: a place to come", File: "internal/fence/launch.go", Func: "Point.FinishUnrecorded",
		Wrong: "a launch whose event was refused counts as a point that its stream has not come to",
		Old:   "p.seq = s.completed.Load()",
		New:   "if p.seq = s.completed.Load(); mutated() {\n p.seq += 2\n }",
	},
	{
		Name: "Synchronize: not synchronised", File: "internal/fence/launch.go", Func: "Stream.Synchronize",
		Wrong: "a launch whose event was refused counts as done and may still be running",
		Old:   "syncErr := s.port.StreamSynchronize(s.handle)",
		New:   "var syncErr error\n if !mutated() {\n syncErr = s.port.StreamSynchronize(s.handle)\n }",
	},
}
