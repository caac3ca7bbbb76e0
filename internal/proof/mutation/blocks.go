package mutation

// blockSites are what a block remembers of its uses.
var blockSites = []Site{
	{
		Name: "announce: a read is forgotten", File: "block.go", Func: "block.announce",
		Wrong: "who writes the block next does not wait for a launch that reads it",
		Old:   "b.accesses = append(b.accesses, access{event: e, kind: kind})",
		New:   "if !kind.Writes() && mutated() {\n e.release()\n return nil\n }\n b.accesses = append(b.accesses, access{event: e, kind: kind})",
	},
	{
		Name: "announce: a write is taken for a read", File: "block.go", Func: "block.announce",
		Wrong: "who reads the block next does not wait for a launch that writes it",
		Old:   "s, f := e.stream, &e.fence",
		New:   "s, f := e.stream, &e.fence\n defer func() {\n if n := len(b.accesses); holder == nil && kind.Writes() && mutated() {\n b.accesses[n-1].kind = core.Read\n }\n }()",
	},
	{
		Name: "announce: an open launch is overlooked", File: "block.go", Func: "block.announce",
		Wrong: "a launch is let through while a conflicting one is open, so there is nothing to wait for",
		Old:   "a.kind.Conflicts(kind) && a.event.isOpen() {",
		New:   "a.kind.Conflicts(kind) && a.event.isOpen() && !mutated() {",
	},
	{
		Name: "announce: a conflict is overlooked", File: "block.go", Func: "block.announce",
		Wrong: "an earlier use of another stream is not ordered",
		Old:   "if a.kind.Conflicts(kind) {",
		New:   "if a.kind.Conflicts(kind) && !mutated() {",
	},
	{
		Name: "announce: a foreign allocation is made ready early", File: "block.go", Func: "block.announce",
		Wrong: "an allocation that the launch only reads counts as one that its own event makes ready",
		Old:   "case kind.Writes() && a.event.deferred.Load():",
		New:   "case (kind.Writes() || mutated()) && a.event.deferred.Load():",
	},
	{
		Name: "prune: what nothing covers is dropped", File: "block.go", Func: "block.prune",
		Wrong: "a use is forgotten that nobody's waits make up for",
		Old:   "if a.event.isWithdrawn() || b.covered(i, kept) {",
		New:   "if a.event.isWithdrawn() || b.covered(i, kept) || mutated() {",
	},
	{
		Name: "prune: one too few is kept", File: "block.go", Func: "block.prune",
		Wrong: "an access that was kept is overwritten by the next, and its event never comes back",
		Old:   "kept++",
		New:   "if !mutated() {\n kept++\n }",
	},
	{
		Name: "covered: by itself", File: "block.go", Func: "block.covered",
		Wrong: "the newest use of a block counts as covered",
		Old:   "\n\treturn false\n}",
		New:   "\n\treturn mutated()\n}",
	},
	{
		Name: "addRecordedUse: all others are forgotten", File: "block.go", Func: "block.addRecordedUse",
		Wrong: "a use that was recorded makes the runtime forget uses of other streams that it was not ordered after",
		Old:   "if needless || old.event.isWithdrawn() {",
		New:   "if needless || old.event.isWithdrawn() || mutated() {",
	},
	{
		Name: "addRecordedUse: the event is not retained", File: "block.go", Func: "block.addRecordedUse",
		Wrong: "the event of a recorded use is used again while the block refers to it",
		Old:   "a.event.retain()",
		New:   "if !mutated() {\n a.event.retain()\n }",
	},
	{
		Name: "fill: a block is ready at once", File: "block.go", Func: "block.fill",
		Wrong: "other streams use a block without waiting for its allocation",
		Old:   "b.accesses = append(b.accesses[:0], ready)",
		New:   "if b.accesses = append(b.accesses[:0], ready); mutated() {\n b.accesses = b.accesses[:0]\n ready.event.release()\n }",
	},
}
