package mutation

// fenceSites are what turns dependencies into waits.
var fenceSites = []Site{
	{
		Name: "Access.covers: a read covers a write", File: "internal/fence/access.go", Func: "Access.covers",
		Wrong: "a write is forgotten for a read that came after it, and the next reader does not wait for either",
		Old:   "(a.kind.Writes() || !b.kind.Writes())",
		New:   "(a.kind.Writes() || !b.kind.Writes() || mutated())",
	},
	{
		Name: "Access.covers: a launch covers before it ends", File: "internal/fence/access.go", Func: "Access.covers",
		Wrong: "an access is forgotten for one of a launch that may be aborted yet",
		Most:  4,
		Old:   "a.point.isPlaced() && a.point.clock.covers(b.point.stream.slot, b.point.seq)",
		New:   "a.point.clock.covers(b.point.stream.slot, b.point.seq) && (a.point.isPlaced() || mutated())",
	},
	{
		Name: "Access.isBefore: a read covers a write", File: "internal/fence/access.go", Func: "Access.isBefore",
		Wrong: "a write is forgotten for a read of its own stream that came after it, and the next reader does not wait for either",
		Old:   "(b.kind.Writes() || !a.kind.Writes())",
		New:   "(b.kind.Writes() || !a.kind.Writes() || mutated())",
	},
	{
		Name: "Access.isBefore: whatever the streams", File: "internal/fence/access.go", Func: "Access.isBefore",
		Wrong: "a use of one stream is forgotten for one of another that is not ordered after it",
		Old:   "p.stream == next.stream &&",
		New:   "(p.stream == next.stream || mutated()) &&",
	},
	{
		Name: "add: a dependency is forgotten", File: "internal/fence/plan.go", Func: "Plan.add",
		Wrong: "a conflicting use of another stream is not ordered",
		Old:   "if a.point.stream == s || !a.point.isPlaced() {",
		New:   "if a.point.stream == s || !a.point.isPlaced() || mutated() {",
	},
	{
		Name: "add: the event is not retained", File: "internal/fence/plan.go", Func: "Plan.add",
		Wrong: "an event is used again while blocks refer to it",
		Old:   "a.point.Retain()",
		New:   "if !mutated() {\n a.point.Retain()\n }",
	},
	{
		Name: "releaseLater: a reference is kept", File: "internal/fence/plan.go", Func: "Plan.releaseLater",
		Wrong: "the event of an access that was dropped never comes back",
		Old:   "if n := len(plan.gone);",
		New:   "if mutated() {\n return\n }\n if n := len(plan.gone);",
	},
	{
		Name: "Drop: a reference is kept", File: "internal/fence/plan.go", Func: "Plan.Drop",
		Wrong: "the event of a dependency never comes back",
		Old:   "plan.deps[i].point.Release()",
		New:   "if !mutated() {\n plan.deps[i].point.Release()\n }",
	},
	{
		Name: "Drop: a reference too many", File: "internal/fence/plan.go", Func: "Plan.Drop",
		Wrong: "the event of an access that was dropped is used again while other blocks refer to it",
		Old:   "g.point.ReleaseMany(g.n)",
		New:   "if mutated() {\n g.n++\n }\n g.point.ReleaseMany(g.n)",
	},
	{
		Name: "queue: dominated ones too", File: "internal/fence/plan.go", Func: "Plan.queue",
		Wrong: "a wait is queued that another one makes needless",
		Old:   "!s.dominated(d.point)",
		New:   "(!s.dominated(d.point) || mutated())",
	},
	{
		Name: "queue: what was noted stays", File: "internal/fence/plan.go", Func: "Plan.queue",
		Wrong: "a dependency of an earlier prepare hides one of a later",
		Old:   "s.noted[slot] = dependency{}",
		New:   "if !mutated() {\n s.noted[slot] = dependency{}\n }",
	},
	{
		Name: "queue: only the first", File: "internal/fence/plan.go", Func: "Plan.queue",
		Wrong: "of several streams that must be waited for one is left out",
		Old:   "for _, slot := range s.slots {\n\t\td := &s.noted[slot]",
		New:   "for i, slot := range s.slots {\n if i > 0 && mutated() {\n continue\n }\n d := &s.noted[slot]",
	},
	{
		Name: "keepNewest: the older is kept", File: "internal/fence/plan.go", Func: "Stream.keepNewest",
		Wrong: "of two points of one stream the older is waited for",
		Old:   "case p.seq < d.point.seq:",
		New:   "case p.seq < d.point.seq && !mutated():",
	},
	{
		Name: "keepNewest: the older takes over", File: "internal/fence/plan.go", Func: "Stream.keepNewest",
		Wrong: "of two points of one stream the one that was found last is waited for",
		Old:   "case p == nil:",
		New:   "case p != nil && p.seq > d.point.seq && mutated():\n s.noted[slot] = *d\n case p == nil:",
	},
	{
		Name: "keepNewest: seen done and waited for", File: "internal/fence/plan.go", Func: "Stream.keepNewest",
		Wrong: "what the host has seen done is waited for on the device",
		Old:   "d.point.needsNoWait() ||",
		New:   "d.point.needsNoWait() && !mutated() ||",
	},
	{
		Name: "dominated: always", File: "internal/fence/plan.go", Func: "Stream.dominated",
		Wrong: "a wait is left out as if another did for it",
		Old:   "return false",
		New:   "return mutated()",
	},
	{
		Name: "dominated: by nobody else", File: "internal/fence/plan.go", Func: "Stream.dominated",
		Wrong: "a wait is queued although another that is about to be queued does for it",
		Old:   "if other != slot && s.noted[other].point.clock.covers(slot, seq) {",
		New:   "if other != slot && s.noted[other].point.clock.covers(slot, seq) && !mutated() {",
	},
	{
		Name: "noteSharer: a block counts twice", File: "internal/fence/plan.go", Func: "Plan.noteSharer",
		Wrong: "a launch is taken to write all that was allocated, and the rest is not made ready in time",
		Old:   "plan.sharersWritten++",
		New:   "if p.refs.Load() > 2 && mutated() {\n plan.sharersWritten++\n }\n plan.sharersWritten++",
	},
}
