package mutation

// readinessSites are the events behind allocations.
var readinessSites = []Site{
	{
		Name: "PointForAllocation: one that is not shareable is shared", File: "internal/fence/deferred.go", Func: "Stream.PointForAllocation",
		Wrong: "an allocation shares an event whose number is believed to be completed",
		Old:   "s.shareable",
		New:   "(s.shareable || mutated())",
	},
	{
		Name: "PointForAllocation: a recorded event is shared", File: "internal/fence/deferred.go", Func: "Stream.PointForAllocation",
		Wrong: "an allocation shares an event that lies before it",
		Old:   "&& p.IsDeferred() {",
		New:   "&& (p.IsDeferred() || mutated()) {",
	},
	{
		Name: "placeReadyPoint: not deferred", File: "internal/fence/deferred.go", Func: "Stream.placeReadyPoint",
		Wrong: "the event behind an allocation is never recorded",
		Old:   "p.state.Store(deferred)",
		New:   "if p.state.Store(deferred); mutated() {\n p.state.Store(recorded)\n }",
	},
	{
		Name: "ConfirmReadyPoint: the event is not retained", File: "internal/fence/deferred.go", Func: "Stream.ConfirmReadyPoint",
		Wrong: "the event behind an allocation is used again while the block refers to it",
		Old:   "ready.Retain()",
		New:   "if !mutated() {\n ready.Retain()\n }",
	},
	{
		Name: "ConfirmReadyPoint: the reserve is kept", File: "internal/fence/deferred.go", Func: "Stream.ConfirmReadyPoint",
		Wrong: "an event that was fetched in reserve never comes back",
		Old:   "reserve.Release()",
		New:   "if !mutated() {\n reserve.Release()\n }",
	},
	{
		Name: "Flush: not recorded", File: "internal/fence/deferred.go", Func: "Stream.Flush",
		Wrong: "the readiness of allocations is recorded by who needs it, behind the work that came meanwhile",
		Old:   "if p.sharers() > 0 {",
		New:   "if p.sharers() > 0 && !mutated() {",
	},
	{
		Name: "coveredBy: some of the blocks will do", File: "internal/fence/deferred.go", Func: "Stream.coveredBy",
		Wrong: "a launch that writes some blocks of an allocations' event stands for all of them",
		Old:   "sharers == plan.sharersWritten",
		New:   "(sharers == plan.sharersWritten || mutated())",
	},
	{
		Name: "coveredBy: of older allocations", File: "internal/fence/deferred.go", Func: "Stream.coveredBy",
		Wrong: "a launch that writes no block of the allocations' event stands for it",
		Old:   "return sharers == 0 ||",
		New:   "return sharers == 0 || s.readyPoint.seq != plan.sharedSeq && mutated() ||",
	},
	{
		Name: "detach: a reference is kept", File: "internal/fence/deferred.go", Func: "Stream.detach",
		Wrong: "the event behind allocations never comes back",
		Old:   "p.Release()",
		New:   "if !mutated() {\n p.Release()\n }",
	},
	{
		Name: "recordDeferred: not recorded", File: "internal/fence/deferred.go", Func: "Point.recordDeferred",
		Wrong: "the event behind allocations counts as recorded and is not",
		Old:   "if err := s.port.EventRecord(p.event, s.handle); err != nil {",
		New:   "if mutated() {\n } else if err := s.port.EventRecord(p.event, s.handle); err != nil {",
	},
	{
		Name: "recordDeferred: recorded again", File: "internal/fence/deferred.go", Func: "Point.recordDeferred",
		Wrong: "the event behind allocations moves behind work that came later",
		Old:   "p.state.Store(recorded)",
		New:   "if !mutated() {\n p.state.Store(recorded)\n }",
	},
	{
		Name: "Here: still shareable", File: "internal/fence/stream.go", Func: "Stream.Here",
		Wrong: "allocations go on sharing an event whose number will be believed to be passed",
		Old:   "s.shareable = false",
		New:   "if s.readyPoint == nil || !mutated() {\n s.shareable = false\n }",
	},
	{
		Name: "flushOthers: one is left", File: "internal/fence/deferred.go", Func: "Plan.flushOthers",
		Wrong: "a wait is queued for an event that was not recorded",
		Old:   "p.IsDeferred() && !p.needsNoWait() {",
		New:   "p.IsDeferred() && !p.needsNoWait() && !mutated() {",
	},
	{
		Name: "allocateLocked: deferred under a launch", File: "tracker.go", Func: "tracker.allocateLocked",
		Wrong: "the readiness of an allocation is recorded behind the work of a launch that was open on its stream",
		Old:   "if s.Open() > 0 {",
		New:   "if s.Open() > 0 && !mutated() {",
	},
}
