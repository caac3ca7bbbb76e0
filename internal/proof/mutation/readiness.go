package mutation

// readinessSites are the events behind allocations.
var readinessSites = []Site{
	{
		Name: "pointForAllocation: a sealed event is shared", File: "readiness.go", Func: "stream.pointForAllocation",
		Wrong: "an allocation shares an event whose number is believed to be completed",
		Old:   "!s.sealed",
		New:   "(!s.sealed || mutated())",
	},
	{
		Name: "pointForAllocation: a recorded event is shared", File: "readiness.go", Func: "stream.pointForAllocation",
		Wrong: "an allocation shares an event that lies before it",
		Old:   "&& e.deferred.Load() {",
		New:   "&& (e.deferred.Load() || mutated()) {",
	},
	{
		Name: "placeReadyPoint: not deferred", File: "readiness.go", Func: "stream.placeReadyPoint",
		Wrong: "the event behind an allocation is never recorded",
		Old:   "e.deferred.Store(true)",
		New:   "if !mutated() {\n e.deferred.Store(true)\n }",
	},
	{
		Name: "confirmReadyPoint: the event is not retained", File: "readiness.go", Func: "stream.confirmReadyPoint",
		Wrong: "the event behind an allocation is used again while the block refers to it",
		Old:   "ready.retain()",
		New:   "if !mutated() {\n ready.retain()\n }",
	},
	{
		Name: "confirmReadyPoint: the reserve is kept", File: "readiness.go", Func: "stream.confirmReadyPoint",
		Wrong: "an event that was fetched in reserve never comes back",
		Old:   "reserve.release()",
		New:   "if !mutated() {\n reserve.release()\n }",
	},
	{
		Name: "flush: not recorded", File: "readiness.go", Func: "stream.flush",
		Wrong: "the readiness of allocations is recorded by who needs it, behind the work that came meanwhile",
		Old:   "if e.sharers() > 0 {",
		New:   "if e.sharers() > 0 && !mutated() {",
	},
	{
		Name: "coveredBy: some of the blocks will do", File: "readiness.go", Func: "stream.coveredBy",
		Wrong: "a launch that writes some blocks of an allocations' event stands for all of them",
		Old:   "sharers == f.sharersWritten",
		New:   "(sharers == f.sharersWritten || mutated())",
	},
	{
		Name: "coveredBy: of older allocations", File: "readiness.go", Func: "stream.coveredBy",
		Wrong: "a launch that writes no block of the allocations' event stands for it",
		Old:   "return sharers == 0 ||",
		New:   "return sharers == 0 || s.readyPoint.seq != f.sharedSeq && mutated() ||",
	},
	{
		Name: "detach: a reference is kept", File: "readiness.go", Func: "stream.detach",
		Wrong: "the event behind allocations never comes back",
		Old:   "e.release()",
		New:   "if !mutated() {\n e.release()\n }",
	},
	{
		Name: "recordDeferred: not recorded", File: "readiness.go", Func: "event.recordDeferred",
		Wrong: "the event behind allocations counts as recorded and is not",
		Old:   "if err := s.drv.EventRecord(e.handle, s.handle); err != nil {",
		New:   "if mutated() {\n } else if err := s.drv.EventRecord(e.handle, s.handle); err != nil {",
	},
	{
		Name: "recordDeferred: recorded again", File: "readiness.go", Func: "event.recordDeferred",
		Wrong: "the event behind allocations moves behind work that came later",
		Old:   "e.deferred.Store(false)",
		New:   "if !mutated() {\n e.deferred.Store(false)\n }",
	},
	{
		Name: "point: not sealed", File: "readiness.go", Func: "stream.point",
		Wrong: "allocations go on sharing an event whose number will be believed to be passed",
		Old:   "s.sealed = true",
		New:   "if s.readyPoint == nil || !mutated() {\n s.sealed = true\n }",
	},
	{
		Name: "flushOthers: one is left", File: "readiness.go", Func: "fence.flushOthers",
		Wrong: "a wait is queued for an event that was not recorded",
		Old:   "e.deferred.Load() && !e.needsNoWait() {",
		New:   "e.deferred.Load() && !e.needsNoWait() && !mutated() {",
	},
	{
		Name: "allocateLocked: deferred under a launch", File: "async.go", Func: "AsyncResource.allocateLocked",
		Wrong: "the readiness of an allocation is recorded behind the work of a launch that was open on its stream",
		Old:   "if s.open.Load() > 0 {",
		New:   "if s.open.Load() > 0 && !mutated() {",
	},
}
