package mutation

// readinessSites are the events behind allocations.
var readinessSites = []Site{
	{
		Name: "readiness: a sealed event is shared", File: "readiness.go", Func: "stream.readiness",
		Wrong: "an allocation shares an event whose number is believed to be completed",
		Old:   "!s.sealed",
		New:   "(!s.sealed || mutated())",
	},
	{
		Name: "readiness: a recorded event is shared", File: "readiness.go", Func: "stream.readiness",
		Wrong: "an allocation shares an event that lies before it",
		Old:   "&& e.late.Load() {",
		New:   "&& (e.late.Load() || mutated()) {",
	},
	{
		Name: "makeReady: not late", File: "readiness.go", Func: "stream.makeReady",
		Wrong: "the event behind an allocation is never recorded",
		Old:   "e.late.Store(true)",
		New:   "if !mutated() {\n e.late.Store(true)\n }",
	},
	{
		Name: "readyBehind: the event is not retained", File: "readiness.go", Func: "stream.readyBehind",
		Wrong: "the event behind an allocation is used again while the block refers to it",
		Old:   "ready.retain()",
		New:   "if !mutated() {\n ready.retain()\n }",
	},
	{
		Name: "readyBehind: the reserve is kept", File: "readiness.go", Func: "stream.readyBehind",
		Wrong: "an event that was fetched in reserve never comes back",
		Old:   "reserve.release()",
		New:   "if !mutated() {\n reserve.release()\n }",
	},
	{
		Name: "flush: not recorded", File: "readiness.go", Func: "stream.flush",
		Wrong: "the readiness of allocations is recorded by who needs it, behind the work that came meanwhile",
		Old:   "if e.refs.Load() > 1 {",
		New:   "if e.refs.Load() > 1 && !mutated() {",
	},
	{
		Name: "coveredBy: some of the blocks will do", File: "readiness.go", Func: "stream.coveredBy",
		Wrong: "a launch that writes some blocks of an allocations' event stands for all of them",
		Old:   "refs == f.own+1",
		New:   "(refs == f.own+1 || mutated())",
	},
	{
		Name: "coveredBy: of older allocations", File: "readiness.go", Func: "stream.coveredBy",
		Wrong: "a launch that writes no block of the allocations' event stands for it",
		Old:   "return refs == 1 ||",
		New:   "return refs == 1 || s.ready.seq != f.ownSeq && mutated() ||",
	},
	{
		Name: "detach: a reference is kept", File: "readiness.go", Func: "stream.detach",
		Wrong: "the event behind allocations never comes back",
		Old:   "e.release()",
		New:   "if !mutated() {\n e.release()\n }",
	},
	{
		Name: "recordLate: not recorded", File: "readiness.go", Func: "event.recordLate",
		Wrong: "the event behind allocations counts as recorded and is not",
		Old:   "if err := s.drv.EventRecord(e.handle, s.handle); err != nil {",
		New:   "if mutated() {\n } else if err := s.drv.EventRecord(e.handle, s.handle); err != nil {",
	},
	{
		Name: "recordLate: recorded again", File: "readiness.go", Func: "event.recordLate",
		Wrong: "the event behind allocations moves behind work that came later",
		Old:   "e.late.Store(false)",
		New:   "if !mutated() {\n e.late.Store(false)\n }",
	},
	{
		Name: "point: not sealed", File: "readiness.go", Func: "stream.point",
		Wrong: "allocations go on sharing an event whose number will be believed to be passed",
		Old:   "s.sealed = true",
		New:   "if s.ready == nil || !mutated() {\n s.sealed = true\n }",
	},
	{
		Name: "flushOthers: one is left", File: "readiness.go", Func: "fence.flushOthers",
		Wrong: "a wait is queued for an event that was not recorded",
		Old:   "e.late.Load() && !e.needsNoWait() {",
		New:   "e.late.Load() && !e.needsNoWait() && !mutated() {",
	},
	{
		Name: "allocateLocked: recorded late under a launch", File: "async.go", Func: "AsyncResource.allocateLocked",
		Wrong: "the readiness of an allocation is recorded behind the work of a launch that was open on its stream",
		Old:   "if s.open.Load() > 0 {",
		New:   "if s.open.Load() > 0 && !mutated() {",
	},
}
