package mutation

// textual is a mutant that no operator makes: a text in a function, there once, and what is in its
// place, with mutated() where the mutant decides. That is called once for each execution that
// counts, and true if that is the one to go wrong.
type textual struct{ file, fn, what, old, new string }

var textuals = []textual{
	{
		"internal/fence/giveup.go", "Stream.GiveUp", "the work of a stream that was given up is believed to be done",
		"s.final.Store(final)", "if mutated() {\n s.NoteCompleted(final.seq)\n }\n s.final.Store(final)",
	},
	{
		"internal/fence/order.go", "Order.Remove", "a stream in the slot of another has numbers that clocks claim to cover already",
		"o.free = append(o.free, freeSlot{slot: s.slot, seq: s.seq})",
		"if mutated() {\n o.free = append(o.free, freeSlot{slot: s.slot})\n } else {\n o.free = append(o.free, freeSlot{slot: s.slot, seq: s.seq})\n }",
	},
	{
		"internal/fence/history.go", "History.Announce", "a read is forgotten",
		"h.accesses = append(h.accesses, Access{point: p, kind: kind})",
		"if !kind.Writes() && mutated() {\n p.Release()\n return 0, nil\n }\n h.accesses = append(h.accesses, Access{point: p, kind: kind})",
	},
	{
		"internal/fence/history.go", "History.Announce", "a write is taken for a read",
		"s, plan := p.stream, &p.plan",
		"s, plan := p.stream, &p.plan\n defer func() {\n if n := len(h.accesses); holder == nil && kind.Writes() && mutated() {\n h.accesses[n-1].kind = core.Read\n }\n }()",
	},
	{
		"internal/fence/history.go", "History.AddRecorded", "a use that was recorded is taken for a read",
		"kind: core.ReadWrite}", "kind: func() core.Access {\n if mutated() {\n return core.Read\n }\n return core.ReadWrite\n }()}",
	},
	{
		"cuda/block.go", "block.fillLocked", "a block is ready at once",
		"b.history.Begin(ready, req.Span)", "if b.history.Begin(ready, req.Span); mutated() {\n b.history.Release()\n }",
	},
	{
		"internal/fence/clock.go", "clock.raise", "the entry is the other's, and not the larger",
		"c[i].seq = max(c[i].seq, t.seq)", "if c[i].seq > t.seq && mutated() {\n c[i].seq = t.seq\n }\n c[i].seq = max(c[i].seq, t.seq)",
	},
	{
		"internal/fence/clock.go", "clock.copyFrom", "the old clock is kept",
		"return append(c[:0], other...)", "if mutated() {\n return c\n }\n return append(c[:0], other...)",
	},
	{
		"internal/fence/stream.go", "Stream.place", "an event claims to cover the next one of its stream",
		"p.clock = p.clock.copyFrom(s.clock)", "p.clock = p.clock.copyFrom(s.clock)\n if mutated() {\n p.clock = p.clock.set(s.slot, p.seq+1)\n }",
	},
	{
		"internal/fence/order.go", "Order.noteCompleted", "the host believes to have seen the point behind the one that was waited for",
		"s.NoteCompleted(t.seq)",
		"s.NoteCompleted(t.seq)\n if mutated() {\n s.NoteCompleted(t.seq + 1)\n }",
	},
	{
		"internal/fence/plan.go", "Stream.keepNewest", "of two points of one stream the one that was found last is waited for",
		"case p == nil:", "case p != nil && p.seq > d.point.seq && mutated():\n s.noted[slot] = *d\n case p == nil:",
	},
	{
		"internal/fence/point.go", "Point.lose", "an event is used again while one reference on it is left",
		"return p.isLaunch() && p.refs.Load() == n || p.refs.Add(-n) == 0", "left := p.refs.Add(-n); return left == 0 || left == 1 && mutated()",
	},
	{
		"internal/fence/stream.go", "Stream.wait", "allocations are not made ready before the wait",
		"if err := s.Flush(); err != nil {", "if s.readyPoint != nil && s.sharers() > 0 && mutated() {\n } else if err := s.Flush(); err != nil {",
	},
	{
		"internal/fence/deferred.go", "Stream.placeReadyPoint", "the point counts as recorded",
		"p.state.Store(deferred)", "if p.state.Store(deferred); mutated() {\n p.state.Store(recorded)\n }",
	},
	{
		"internal/fence/stream.go", "Stream.Here", "the ready point stays shareable",
		"s.shareable = false", "if s.readyPoint == nil || !mutated() {\n s.shareable = false\n }",
	},
	{
		"internal/fence/launch.go", "Stream.Announce", "a reference too few is taken",
		"p.endsAs = recorded", "if p.endsAs = recorded; mutated() {\n p.refs.Add(-1)\n }",
	},
	{
		"internal/fence/launch.go", "Stream.Announce", "the point counts as deferred",
		"p.plan.sharersWritten, p.plan.sharedSeq = 0, 0", "p.plan.sharersWritten, p.plan.sharedSeq = 0, 0\n if mutated() {\n defer p.state.Store(deferred)\n }",
	},
	{
		"internal/fence/launch.go", "Stream.Announce", "the point counts as placed",
		"p.state.Store(announced)", "if p.state.Store(announced); mutated() {\n p.state.Store(recorded)\n }",
	},
	{
		"internal/fence/launch.go", "Point.FinishUnrecorded", "a launch whose event was refused counts as a point that its stream has not come to",
		"p.seq = s.completed.Load()", "if p.seq = s.completed.Load(); mutated() {\n p.seq += 2\n }",
	},
	{
		"internal/fence/launch.go", "Stream.Synchronize", "the host does not wait",
		"syncErr := s.port.StreamSynchronize(s.handle)", "var syncErr error\n if !mutated() {\n syncErr = s.port.StreamSynchronize(s.handle)\n }",
	},
	{
		"internal/fence/launch.go", "Point.Finish", "a launch ends and its event is where it was the last time",
		"err := s.recordAt(p); err != nil", "mutated() {\n s.place(p)\n } else if err := s.recordAt(p); err != nil",
	},
	{
		"cuda/kept.go", "keeping.revive", "a block that was kept is ready at once",
		"b.history.Begin(ready, step.Request.Span)",
		"if b.history.Begin(ready, step.Request.Span); mutated() {\n b.history.Release()\n }",
	},
	{
		"cuda/arena.go", "arena.giveBehind", "a block is free behind nothing",
		"l.fit.Give(ptr, mark)", "l.fit.Give(ptr, func() uint64 {\n if mutated() {\n return 0\n }\n return mark\n }())",
	},
	{
		"cuda/freequeue.go", "freeQueue.markCompleted", "the mark counts for frees that were queued behind it",
		"q.mark.Release()", "if all := int(q.pendingFrees()); q.marked < all && mutated() {\n q.marked = all\n }\n q.mark.Release()",
	},
	{
		"cuda/reap.go", "tracker.lookAtMark", "the mark counts as completed as soon as it is recorded",
		"s.frees.markAll(mark)", "if mutated() {\n s.NoteCompleted(s.Seq())\n }\n s.frees.markAll(mark)",
	},
	{
		"cuda/arena.go", "arena.covered", "the owner's clock is asked, and not the taker's",
		"return s.Covers(&l.stream.Stream, mark)", "if mutated() {\n return l.stream.Covers(&l.stream.Stream, mark)\n }\n return s.Covers(&l.stream.Stream, mark)",
	},
	{
		"cuda/makeroom.go", "arenas.stealRun", "memory is stolen and nothing comes after its frees",
		"err := m.comeAfter(s, req, behind, newest, r.behind)", "err := func() error {\n if behind != nil && mutated() {\n return m.comeAfter(s, req, nil, newest, r.behind)\n }\n return m.comeAfter(s, req, behind, newest, r.behind)\n }()",
	},
	{
		"cuda/makeroom.go", "arenas.stealRun", "memory is stolen and nothing comes after uses elsewhere",
		"s.Lock()\n\tdefer s.Unlock()", "if r.behind != nil && mutated() {\n r.behind = nil\n }\n s.Lock()\n defer s.Unlock()",
	},
	{
		"cuda/makeroom.go", "arenas.await", "a stream's own memory is used again and nothing comes after uses elsewhere",
		"err := m.comeAfter(s, req, nil, core.UseRecord{}, behind)", "err := func() error {\n if mutated() {\n return nil\n }\n return m.comeAfter(s, req, nil, core.UseRecord{}, behind)\n }()",
	},
	{
		"cuda/arena.go", "arena.settleCompleted", "memory is held no more although a use elsewhere is not completed",
		"return behind.IsCompleted()", "return behind.IsCompleted() || mutated()",
	},
	{
		"cuda/free.go", "tracker.retryFrees", "a free goes on although a use elsewhere is not completed",
		"!completed {", "!completed && !mutated() {",
	},
	{
		"cuda/internal/fit/held.go", "Fit.CutRow", "of memory that was held in several pieces the first is forgotten",
		"ok = cut()\n\treturn behind, mark, ok", "if ok = cut(); len(behind) > 1 && mutated() {\n behind = behind[1:]\n }\n return behind, mark, ok",
	},
	{
		"cuda/internal/fit/held.go", "Fit.split", "of a held range of which pages are taken the rest is free",
		"f.hold(rest, r.mark, behind)", "if f.hold(rest, r.mark, behind); mutated() {\n f.Settle(0, func(h Held) bool { return h.Ptr == rest.ptr })\n }",
	},
	{
		"internal/fence/frontier.go", "Plan.Frontier", "a frontier loses a point",
		"p.Retain()", "if mutated() {\n continue\n }\n p.Retain()",
	},
	{
		"cuda/makeroom.go", "arenas.takeParts", "of pages in a row only those are waited for that lie first",
		"given, err = m.steal(s, req, from[p.From], p)",
		`if p != r[0] && mutated() {
			var got run
			if got, given = from[p.From].cutAt(p.Ptr, p.Bytes, nil); given {
				m.own(got, s.arena)
				s.arena.add(got, 0)
			}
		} else {
			given, err = m.steal(s, req, from[p.From], p)
		}`,
	},
	{
		"cuda/internal/fit/fit.go", "Fit.merge", "of two ranges that become one the mark is the older",
		"lo.mark = max(lo.mark, hi.mark)", "if mutated() {\n lo.mark = min(lo.mark, hi.mark)\n } else {\n lo.mark = max(lo.mark, hi.mark)\n }",
	},
}
