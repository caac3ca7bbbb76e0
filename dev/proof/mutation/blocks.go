package mutation

// blockSites are what a block remembers of its uses.
var blockSites = []Site{
	{
		Name: "Announce: a read is forgotten", File: "internal/fence/history.go", Func: "History.Announce",
		Wrong: "who writes the block next does not wait for a launch that reads it",
		Old:   "h.accesses = append(h.accesses, Access{point: p, kind: kind})",
		New:   "if !kind.Writes() && mutated() {\n p.Release()\n return nil\n }\n h.accesses = append(h.accesses, Access{point: p, kind: kind})",
	},
	{
		Name: "Announce: a write is taken for a read", File: "internal/fence/history.go", Func: "History.Announce",
		Wrong: "who reads the block next does not wait for a launch that writes it",
		Old:   "s, plan := p.stream, &p.plan",
		New:   "s, plan := p.stream, &p.plan\n defer func() {\n if n := len(h.accesses); holder == nil && kind.Writes() && mutated() {\n h.accesses[n-1].kind = core.Read\n }\n }()",
	},
	{
		Name: "Announce: an open launch is overlooked", File: "internal/fence/history.go", Func: "History.Announce",
		Wrong: "a launch is let through while a conflicting one is open, so there is nothing to wait for",
		Old:   "a.kind.Conflicts(kind) && a.point.IsOpen() {",
		New:   "a.kind.Conflicts(kind) && a.point.IsOpen() && !mutated() {",
	},
	{
		Name: "Announce: a conflict is overlooked", File: "internal/fence/history.go", Func: "History.Announce",
		Wrong: "an earlier use of another stream is not ordered",
		Old:   "if a.kind.Conflicts(kind) {",
		New:   "if a.kind.Conflicts(kind) && !mutated() {",
	},
	{
		Name: "Announce: a foreign allocation is made ready early", File: "internal/fence/history.go", Func: "History.Announce",
		Wrong: "an allocation that the launch only reads counts as one that its own event makes ready",
		Old:   "case kind.Writes() && a.point.IsDeferred():",
		New:   "case (kind.Writes() || mutated()) && a.point.IsDeferred():",
	},
	{
		Name: "prune: what nothing covers is dropped", File: "internal/fence/history.go", Func: "History.prune",
		Wrong: "a use is forgotten that nobody's waits make up for",
		Old:   "if a.point.isWithdrawn() || h.covered(i, kept) {",
		New:   "if a.point.isWithdrawn() || h.covered(i, kept) || mutated() {",
	},
	{
		Name: "prune: one too few is kept", File: "internal/fence/history.go", Func: "History.prune",
		Wrong: "an access that was kept is overwritten by the next, and its event never comes back",
		Old:   "kept++",
		New:   "if !mutated() {\n kept++\n }",
	},
	{
		Name: "covered: by itself", File: "internal/fence/history.go", Func: "History.covered",
		Wrong: "the newest use of a block counts as covered",
		Old:   "\n\treturn false\n}",
		New:   "\n\treturn mutated()\n}",
	},
	{
		Name: "AddRecorded: all others are forgotten", File: "internal/fence/history.go", Func: "History.AddRecorded",
		Wrong: "a use that was recorded makes the runtime forget uses of other streams that it was not ordered after",
		Old:   "if needless || old.point.isWithdrawn() {",
		New:   "if needless || old.point.isWithdrawn() || mutated() {",
	},
	{
		Name: "AddRecorded: the event is not retained", File: "internal/fence/history.go", Func: "History.AddRecorded",
		Wrong: "the event of a recorded use is used again while the block refers to it",
		Old:   "p.Retain()",
		New:   "if !mutated() {\n p.Retain()\n }",
	},
	{
		Name: "fill: a block is ready at once", File: "block.go", Func: "block.fillLocked",
		Wrong: "other streams use a block without waiting for its allocation",
		Old:   "b.history.Begin(ready, span)",
		New:   "if b.history.Begin(ready, span); mutated() {\n b.history.Release()\n }",
	},
}
