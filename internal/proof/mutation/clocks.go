package mutation

// clockSites are the clocks, streamSites what a stream does with its own.
var (
	clockSites = []Site{
		{
			Name: "join: nothing is taken", File: "clock.go", Func: "clock.join",
			Wrong: "a wait is queued and its clock is forgotten, so that what came before it is waited for again",
			Old:   "for i, seq := range other {",
			New:   "if mutated() {\n return c\n }\n for i, seq := range other {",
		},
		{
			Name: "join: the other's entry, not the larger", File: "clock.go", Func: "clock.join",
			Wrong: "a wait makes the stream forget what it was ordered after by itself or by another wait",
			Old:   "c[i] = max(c[i], seq)",
			New:   "if c[i] > seq && mutated() {\n c[i] = seq\n }\n c[i] = max(c[i], seq)",
		},
		{
			Name: "set: the entry is not raised", File: "clock.go", Func: "clock.set",
			Wrong: "a point's clock lacks the point itself, so that who waited for it waits again",
			Old:   "c[slot] = max(c[slot], seq)",
			New:   "if seq <= c[slot] || !mutated() {\n c[slot] = max(c[slot], seq)\n }",
		},
		{
			Name: "covers: always", File: "clock.go", Func: "clock.covers",
			Wrong: "a clock claims an order that there is not",
			Old:   "return c.at(slot) >= seq",
			New:   "return c.at(slot) >= seq || mutated()",
		},
		{
			Name: "copyFrom: the old clock is kept", File: "clock.go", Func: "clock.copyFrom",
			Wrong: "an event carries the clock of the work that it was recorded behind the last time",
			Old:   "return append(c[:0], other...)",
			New:   "if mutated() {\n return c\n }\n return append(c[:0], other...)",
		},
	}
	streamSites = []Site{
		{
			Name: "wait: not queued", File: "stream.go", Func: "stream.wait",
			Wrong: "the clock promises a wait that the driver was not asked for",
			Old:   "if err := s.drv.StreamWait(s.handle, e.handle); err != nil {",
			New:   "if mutated() {\n } else if err := s.drv.StreamWait(s.handle, e.handle); err != nil {",
		},
		{
			Name: "wait: the clock is not joined", File: "stream.go", Func: "stream.wait",
			Wrong: "a wait is queued and the stream does not know of it",
			Old:   "s.clock = s.clock.join(e.clock)",
			New:   "if !mutated() {\n s.clock = s.clock.join(e.clock)\n }",
		},
		{
			Name: "wait: allocations are not flushed", File: "stream.go", Func: "stream.wait",
			Wrong: "the readiness of allocations is recorded behind a wait, so that who waits for it comes after what that is for",
			Old:   "if err := s.flush(); err != nil {",
			New:   "if s.readyPoint != nil && s.readyPoint.refs.Load() > 1 && mutated() {\n } else if err := s.flush(); err != nil {",
		},
		{
			Name: "recordIn: not recorded", File: "stream.go", Func: "stream.recordIn",
			Wrong: "an event has a place and was never recorded there",
			Old:   "if err := s.drv.EventRecord(e.handle, s.handle); err != nil {",
			New:   "if mutated() {\n } else if err := s.drv.EventRecord(e.handle, s.handle); err != nil {",
		},
		{
			Name: "recordIn: allocations are not flushed", File: "stream.go", Func: "stream.recordIn",
			Wrong: "the readiness of allocations is recorded behind a later event, and so behind a launch's work",
			Old:   "if err := s.flush(); err != nil {",
			New:   "if s.readyPoint != nil && s.readyPoint.refs.Load() > 1 && mutated() {\n } else if err := s.flush(); err != nil {",
		},
		{
			Name: "place: no new number", File: "stream.go", Func: "stream.place",
			Wrong: "two points of a stream have one number, so that the newer one is taken for known",
			Old:   "s.seq++",
			New:   "if !mutated() {\n s.seq++\n }",
		},
		{
			Name: "place: a number is given in advance", File: "stream.go", Func: "stream.place",
			Wrong: "an event claims to cover the next one of its stream",
			Old:   "e.clock = e.clock.copyFrom(s.clock)",
			New:   "e.clock = e.clock.copyFrom(s.clock)\n if mutated() {\n e.clock[s.slot]++\n }",
		},
		{
			Name: "queryCompleted: yes for no", File: "stream.go", Func: "stream.queryCompleted",
			Wrong: "the device is believed to have passed what it has not",
			Old:   "if err != nil || !done {",
			New:   "if err != nil || !done && !mutated() {",
		},
		{
			Name: "queryCompleted: the answer is not noted", File: "stream.go", Func: "stream.queryCompleted",
			Wrong: "what the host has seen done is waited for on the device",
			Old:   "s.noteCompleted(e.seq)\n\te.noteClockCompleted()",
			New:   "if !mutated() {\n s.noteCompleted(e.seq)\n e.noteClockCompleted()\n }",
		},
		{
			Name: "noteClockCompleted: another stream is left out", File: "stream.go", Func: "event.noteClockCompleted",
			Wrong: "what must have been done before an event that the host has seen is waited for on the device",
			Old:   "s.noteCompleted(e.clock.at(s.slot))",
			New:   "if s.completed.Load() >= e.clock.at(s.slot) || !mutated() {\n s.noteCompleted(e.clock.at(s.slot))\n }",
		},
		{
			Name: "noteClockCompleted: one too many", File: "stream.go", Func: "event.noteClockCompleted",
			Wrong: "the host believes to have seen the point behind the one that was waited for",
			Old:   "for _, s := range e.stream.table.streams() {",
			New:   "for _, s := range e.stream.table.streams() {\n if n := e.clock.at(s.slot); n > 0 && mutated() {\n s.noteCompleted(n + 1)\n }",
		},
		{
			Name: "needsNoWait: always", File: "stream.go", Func: "event.needsNoWait",
			Wrong: "a dependency is left out because the host is said to have seen it done",
			Old:   "e.isCompleted() &&",
			New:   "(e.isCompleted() || mutated()) &&",
		},
	}
)
