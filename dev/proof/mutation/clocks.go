package mutation

// clockSites are the clocks, streamSites what a stream does with its own.
var (
	clockSites = []Site{
		{
			Name: "join: nothing is taken", File: "internal/fence/clock.go", Func: "clock.join",
			Wrong: "a wait is queued and its clock is forgotten, so that what came before it is waited for again",
			Old:   "for i, seq := range other {",
			New:   "if mutated() {\n return c\n }\n for i, seq := range other {",
		},
		{
			Name: "join: the other's entry, not the larger", File: "internal/fence/clock.go", Func: "clock.join",
			Wrong: "a wait makes the stream forget what it was ordered after by itself or by another wait",
			Old:   "c[i] = max(c[i], seq)",
			New:   "if c[i] > seq && mutated() {\n c[i] = seq\n }\n c[i] = max(c[i], seq)",
		},
		{
			Name: "set: the entry is not raised", File: "internal/fence/clock.go", Func: "clock.set",
			Wrong: "a point's clock lacks the point itself, so that who waited for it waits again",
			Old:   "c[slot] = max(c[slot], seq)",
			New:   "if seq <= c[slot] || !mutated() {\n c[slot] = max(c[slot], seq)\n }",
		},
		{
			Name: "covers: always", File: "internal/fence/clock.go", Func: "clock.covers",
			Wrong: "a clock claims an order that there is not",
			Old:   "return c.at(slot) >= seq",
			New:   "return c.at(slot) >= seq || mutated()",
		},
		{
			Name: "copyFrom: the old clock is kept", File: "internal/fence/clock.go", Func: "clock.copyFrom",
			Wrong: "an event carries the clock of the work that it was recorded behind the last time",
			Old:   "return append(c[:0], other...)",
			New:   "if mutated() {\n return c\n }\n return append(c[:0], other...)",
		},
	}
	streamSites = []Site{
		{
			Name: "wait: not queued", File: "internal/fence/stream.go", Func: "Stream.wait",
			Wrong: "the clock promises a wait that the driver was not asked for",
			Old:   "if err := s.port.StreamWait(s.handle, p.event); err != nil {",
			New:   "if mutated() {\n } else if err := s.port.StreamWait(s.handle, p.event); err != nil {",
		},
		{
			Name: "wait: the clock is not joined", File: "internal/fence/stream.go", Func: "Stream.wait",
			Wrong: "a wait is queued and the stream does not know of it",
			Old:   "s.clock = s.clock.join(p.clock)",
			New:   "if !mutated() {\n s.clock = s.clock.join(p.clock)\n }",
		},
		{
			Name: "wait: allocations are not flushed", File: "internal/fence/stream.go", Func: "Stream.wait",
			Wrong: "the readiness of allocations is recorded behind a wait, so that who waits for it comes after what that is for",
			Old:   "if err := s.Flush(); err != nil {",
			New:   "if s.readyPoint != nil && s.readyPoint.refs.Load() > 1 && mutated() {\n } else if err := s.Flush(); err != nil {",
		},
		{
			Name: "recordAt: not recorded", File: "internal/fence/stream.go", Func: "Stream.recordAt",
			Wrong: "an event has a place and was never recorded there",
			Old:   "if err := s.port.EventRecord(p.event, s.handle); err != nil {",
			New:   "if mutated() {\n } else if err := s.port.EventRecord(p.event, s.handle); err != nil {",
		},
		{
			Name: "recordAt: allocations are not flushed", File: "internal/fence/stream.go", Func: "Stream.recordAt",
			Wrong: "the readiness of allocations is recorded behind a later event, and so behind a launch's work",
			Old:   "if err := s.Flush(); err != nil {",
			New:   "if s.readyPoint != nil && s.readyPoint.refs.Load() > 1 && mutated() {\n } else if err := s.Flush(); err != nil {",
		},
		{
			Name: "place: no new number", File: "internal/fence/stream.go", Func: "Stream.place",
			Wrong: "two points of a stream have one number, so that the newer one is taken for known",
			Old:   "s.seq++",
			New:   "if !mutated() {\n s.seq++\n }",
		},
		{
			Name: "place: a number is given in advance", File: "internal/fence/stream.go", Func: "Stream.place",
			Wrong: "an event claims to cover the next one of its stream",
			Old:   "p.clock = p.clock.copyFrom(s.clock)",
			New:   "p.clock = p.clock.copyFrom(s.clock)\n if mutated() {\n p.clock[s.slot]++\n }",
		},
		{
			Name: "QueryCompleted: yes for no", File: "internal/fence/stream.go", Func: "Stream.QueryCompleted",
			Wrong: "the device is believed to have passed what it has not",
			Old:   "if err != nil || !done {",
			New:   "if err != nil || !done && !mutated() {",
		},
		{
			Name: "QueryCompleted: the answer is not noted", File: "internal/fence/stream.go", Func: "Stream.QueryCompleted",
			Wrong: "what the host has seen done is waited for on the device",
			Old:   "s.NoteCompleted(p.seq)\n\tp.noteClockCompleted()",
			New:   "if !mutated() {\n s.NoteCompleted(p.seq)\n p.noteClockCompleted()\n }",
		},
		{
			Name: "noteClockCompleted: another stream is left out", File: "internal/fence/point.go", Func: "Point.noteClockCompleted",
			Wrong: "what must have been done before an event that the host has seen is waited for on the device",
			Old:   "s.NoteCompleted(p.clock.at(s.slot))",
			New:   "if s.completed.Load() >= p.clock.at(s.slot) || !mutated() {\n s.NoteCompleted(p.clock.at(s.slot))\n }",
		},
		{
			Name: "noteClockCompleted: one too many", File: "internal/fence/point.go", Func: "Point.noteClockCompleted",
			Wrong: "the host believes to have seen the point behind the one that was waited for",
			Old:   "for _, s := range p.stream.order.streams() {",
			New:   "for _, s := range p.stream.order.streams() {\n if n := p.clock.at(s.slot); n > 0 && mutated() {\n s.NoteCompleted(n + 1)\n }",
		},
		{
			Name: "needsNoWait: always", File: "internal/fence/point.go", Func: "Point.needsNoWait",
			Wrong: "a dependency is left out because the host is said to have seen it done",
			Old:   "p.isCompleted() &&",
			New:   "(p.isCompleted() || mutated()) &&",
		},
	}
)
