package mutation

// fenceSites are what turns dependencies into waits.
var fenceSites = []Site{
	{
		Name: "access.covers: a read covers a write", File: "fence.go", Func: "access.covers",
		Wrong: "a write is forgotten for a read that came after it, and the next reader does not wait for either",
		Old:   "(a.kind.Writes() || !b.kind.Writes())",
		New:   "(a.kind.Writes() || !b.kind.Writes() || mutated())",
	},
	{
		Name: "access.covers: a launch covers before it ends", File: "fence.go", Func: "access.covers",
		Wrong: "an access is forgotten for one of a launch that may be aborted yet",
		Most:  4,
		Old:   "a.event.isPlaced() && a.event.clock.covers(b.event.stream.slot, b.event.seq)",
		New:   "a.event.clock.covers(b.event.stream.slot, b.event.seq) && (a.event.isPlaced() || mutated())",
	},
	{
		Name: "add: a dependency is forgotten", File: "fence.go", Func: "fence.add",
		Wrong: "a conflicting use of another stream is not ordered",
		Old:   "if a.event.stream == s || !a.event.isPlaced() {",
		New:   "if a.event.stream == s || !a.event.isPlaced() || mutated() {",
	},
	{
		Name: "add: the event is not retained", File: "fence.go", Func: "fence.add",
		Wrong: "an event is used again while blocks refer to it",
		Old:   "a.event.retain()",
		New:   "if !mutated() {\n a.event.retain()\n }",
	},
	{
		Name: "release: a reference is kept", File: "fence.go", Func: "fence.release",
		Wrong: "the event of an access that was dropped never comes back",
		Old:   "if n := len(f.gone);",
		New:   "if mutated() {\n return\n }\n if n := len(f.gone);",
	},
	{
		Name: "drop: a reference is kept", File: "fence.go", Func: "fence.drop",
		Wrong: "the event of a dependency never comes back",
		Old:   "f.deps[i].event.release()",
		New:   "if !mutated() {\n f.deps[i].event.release()\n }",
	},
	{
		Name: "drop: a reference too many", File: "fence.go", Func: "fence.drop",
		Wrong: "the event of an access that was dropped is used again while other blocks refer to it",
		Old:   "f.gone[i].event.releaseMany(f.gone[i].n)",
		New:   "if mutated() {\n f.gone[i].n++\n }\n f.gone[i].event.releaseMany(f.gone[i].n)",
	},
	{
		Name: "queue: dominated ones too", File: "fence.go", Func: "fence.queue",
		Wrong: "a wait is queued that another one makes needless",
		Old:   "!s.dominated(d)",
		New:   "(!s.dominated(d) || mutated())",
	},
	{
		Name: "queue: what was noted stays", File: "fence.go", Func: "fence.queue",
		Wrong: "a dependency of an earlier prepare hides one of a later",
		Old:   "s.newest[slot] = dependency{}",
		New:   "if !mutated() {\n s.newest[slot] = dependency{}\n }",
	},
	{
		Name: "queue: only the first", File: "fence.go", Func: "fence.queue",
		Wrong: "of several streams that must be waited for one is left out",
		Old:   "for _, slot := range s.slots {\n\t\td := s.newest[slot]",
		New:   "for i, slot := range s.slots {\n if i > 0 && mutated() {\n continue\n }\n d := s.newest[slot]",
	},
	{
		Name: "keepNewest: the older is kept", File: "fence.go", Func: "stream.keepNewest",
		Wrong: "of two points of one stream the older is waited for",
		Old:   "case noted.seq < d.event.seq:",
		New:   "case noted.seq < d.event.seq && !mutated():",
	},
	{
		Name: "keepNewest: the older takes over", File: "fence.go", Func: "stream.keepNewest",
		Wrong: "of two points of one stream the one that was found last is waited for",
		Old:   "case noted == nil:",
		New:   "case noted != nil && noted.seq > d.event.seq && mutated():\n s.newest[slot] = *d\n case noted == nil:",
	},
	{
		Name: "keepNewest: seen done and waited for", File: "fence.go", Func: "stream.keepNewest",
		Wrong: "what the host has seen done is waited for on the device",
		Old:   "d.event.needsNoWait() ||",
		New:   "d.event.needsNoWait() && !mutated() ||",
	},
	{
		Name: "dominated: always", File: "fence.go", Func: "stream.dominated",
		Wrong: "a wait is left out as if another did for it",
		Old:   "return false",
		New:   "return mutated()",
	},
	{
		Name: "dominated: by nobody else", File: "fence.go", Func: "stream.dominated",
		Wrong: "a wait is queued although another that is about to be queued does for it",
		Old:   "if other != slot && s.newest[other].event.clock.covers(slot, seq) {",
		New:   "if other != slot && s.newest[other].event.clock.covers(slot, seq) && !mutated() {",
	},
	{
		Name: "noteSharer: a block counts twice", File: "fence.go", Func: "fence.noteSharer",
		Wrong: "a launch is taken to write all that was allocated, and the rest is not made ready in time",
		Old:   "f.sharersWritten++",
		New:   "if e.refs.Load() > 2 && mutated() {\n f.sharersWritten++\n }\n f.sharersWritten++",
	},
}
