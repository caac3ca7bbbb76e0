package mutation

// quickSites are what the quick path looks at before it serves an operation over the runtime's own
// pool, and what it must not leave out.
var quickSites = []Site{
	{
		Name: "allocate: quickly under a launch", File: "cuda/pool.go", Func: "quickPool.allocate",
		Wrong: "the readiness of an allocation is recorded behind the work of a launch that is open",
		Most:  1,
		Old:   "s.Open() > 0",
		New:   "s.Open() > 0 && !mutated()",
	},
	{
		Name: "free: quickly under a launch", File: "cuda/pool.go", Func: "quickPool.free",
		Wrong: "a block is freed quickly while a launch over it is open",
		Most:  1,
		Old:   "b.history.HasOpen()",
		New:   "b.history.HasOpen() && !mutated()",
	},
	{
		Name: "free: quickly although used elsewhere", File: "cuda/pool.go", Func: "quickPool.free",
		Wrong: "a block is freed quickly without waiting for the uses of other streams",
		Most:  1,
		Old:   "!b.history.UsedOnlyOn(&s.Stream)",
		New:   "(!b.history.UsedOnlyOn(&s.Stream) && !mutated())",
	},
	{
		Name: "free: the references are kept", File: "cuda/pool.go", Func: "quickPool.free",
		Wrong: "the events of a block that was freed quickly never come back",
		Most:  1,
		Old:   "b.history.Release()",
		New:   "if !mutated() {\n b.history.Release()\n }",
	},
	{
		Name: "holdDeferred: a recorded event is shared", File: "internal/fence/deferred.go", Func: "Point.holdDeferred",
		Wrong: "an allocation that is served quickly shares an event that lies before it",
		Most:  1,
		Old:   "!p.IsDeferred()",
		New:   "!p.IsDeferred() && !mutated()",
	},
}
