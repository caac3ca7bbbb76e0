package mutation

// equivalent are the mutants, by name, that nothing can show to be wrong, and why.
var equivalent = map[string]string{}

func init() {
	for why, names := range survivors {
		for _, name := range names {
			equivalent[name] = why
		}
	}
}

// survivors are those mutants by the reason.
var survivors = map[string][]string{
	"the next look does what this one does not": {
		"Look.IsCompleted: taken to hold: u.stream == p.stream",
		"tracker.lookAtMark: taken to hold: false (2)",
		"tracker.lookAtMark: dropped: s.frees.markCompleted()",
		"Stream.QueryCompleted: taken to fail: p.isCompleted()",
	},
	"the longer way comes to the same": {
		"Plan.Frontier: taken to fail: s.clock.covers(p.stream.slot, p.seq)",
		"Plan.Frontier: taken to fail: done && err == nil",
		"Frontier.IsBefore: taken to hold: !p.needsNoWait()",
		"Frontier.IsBefore: taken to hold: !s.clock.covers(p.stream.slot, p.seq)",
		"Frontier.IsBefore: taken to fail: !slices.ContainsFunc(f.points, func(p *Point) bool { …",
		"History.prune: taken to hold: kept < i",
		"Stream.keepNewest: off by one: p.seq < d.point.seq",
		"History.prune: off by one: kept < i",
		"tracker.queueFreeLocked: taken to hold: s.IsGivenUp()",
		"tracker.queueFreeLocked: taken to fail: s != b.stream",
		"freeQueue.setAside: taken to hold: p.block.isIsolated()",
		"Access.isBefore: taken to fail: p.stream == next.stream && (b.kind.Writes() || !a.kind.Writes()) && p.isPlaced() && next.isPlaced() && p.seq <= next.seq",
		"Access.isBefore: taken to fail: b.kind.Writes()",
		"Access.isBefore: taken to fail: !a.kind.Writes()",
		"History.prune: taken to fail: len(h.accesses) == 1 && h.accesses[0].point.isPlaced()",
		"History.prune: taken to fail: len(h.accesses) == 2",
		"Point.Fence: taken to fail: len(plan.deps) == 0 && !p.stream.readies.Load()",
		"Point.dropPlan: taken to fail: p.own && s.ownSpare == nil && n > 0",
		"Point.dropPlan: taken to fail: g.point.stream == s",
		"History.prune: taken to fail: plan.hasSeen(old, last)",
		"Stream.LeaveOwn: taken to hold: s.points.closed.Load()",
		"Stream.Announce: taken to fail: own",
		"Stream.Announce: dropped: p.own = own",
		"Stream.Announce: dropped: p, s.ownSpare = s.ownSpare, nil",
		"History.prune: taken to fail: old.point.isPlaced() && last.covers(old)",
		"History.prune: dropped: plan.older, plan.newer, plan.newerSeq = old.point, last.point, last.point.seq",
		"History.ReleaseOn: taken to fail: p == s.readyPoint",
		"Plan.add: taken to fail: n > 0 && plan.deps[n-1].point == a.point",
		"Stream.detach: dropped: s.readies.Store(false)",
		"Stream.place: taken to hold: !s.clock.isAt(s.own, s.slot)",
		"clock.copyFrom: taken to fail: len(other) == 1 && cap(c) > 0",
		"History.UsedOnlyOn: taken to hold: h.accesses[i].point.stream != s",
		"History.UsedOnlyOn: taken to fail: true",
		"Point.holdDeferred: taken to hold: !p.IsDeferred()",
		"Point.End: taken to hold: watched",
		"Point.End: taken to hold: rest > 0",
		"Point.watch: taken to hold: p.state.Load() == announced",
		"Point.end: taken to hold: false",
		"Plan.add: taken to fail: a.point.stream == s",
		"Plan.releaseLater: taken to fail: n > 0 && plan.gone[n-1].point == p",
		"Stream.queueWaits: taken to fail: len(plan.deps) == 0",
	},
	"an access that could be forgotten is kept, and its wait is found to be needless": {
		"Access.covers: taken to fail: a.kind.Writes()",
		"Access.covers: taken to fail: !b.kind.Writes()",
		"Access.covers: taken to fail: (a.kind.Writes() || !b.kind.Writes()) && a.point.isPlaced() && a.point.clock.covers(b.point.stream.slot, b.point.seq)",
		"History.Announce: dropped: h.prune(plan)",
		"History.PlanFree: dropped: h.prune(plan)",
		"History.covered: taken to hold: !a.point.isPlaced()",
		"History.covered: taken to fail: h.accesses[j].covers(a)",
		"History.covered: taken to fail: h.accesses[j].covers(a) (2)",
		"Point.FinishUnrecorded: dropped: p.clock = p.clock[:0].set(s.slot, p.seq)",
		"History.prune: taken to fail: a.point.isWithdrawn()",
		"History.prune: taken to hold: h.accesses[0].point.isPlaced()",
		"History.prune: taken to fail: h.covered(i, kept)",
		"History.covered: an element skipped: for j := range kept { …",
		"History.covered: taken to fail: true",
		"History.covered: taken to fail: true (2)",
		"History.AddRecorded: taken to fail: needless",
		"History.AddRecorded: taken to fail: old.point.isWithdrawn()",
		"Point.isWithdrawn: taken to fail: p.state.Load() == withdrawn",
	},
	"a record too many, or an earlier one, orders nothing": {
		"Stream.PointForAllocation: taken to fail: p.lease == lease && s.shareable && p.IsDeferred()",
		"Stream.flush: taken to hold: s.sharers() > 0",
		"Stream.coveredBy: taken to fail: true",
		"Stream.coveredBy: taken to fail: s.readyPoint.seq == plan.sharedSeq && sharers == plan.sharersWritten",
		"Stream.queueWaits: taken to hold: !s.coveredBy(plan)",
		"Point.Finish: dropped: s.detach()",
		"Point.Finish: taken to fail: s.coveredBy(&p.plan)",
		"Plan.flushOthers: taken to hold: p.IsDeferred()",
		"Plan.flushOthers: taken to hold: !p.needsNoWait()",
		"History.Announce: dropped: plan.noteSharer(a.point)",
		"History.Announce: taken to hold: a.point.stream != s",
		"History.Announce: taken to fail: kind.Writes() && a.point.IsDeferred()",
		"Plan.noteSharer: taken to hold: p.seq > plan.sharedSeq",
		"Plan.noteSharer: dropped: plan.sharersWritten++",
		"Plan.noteSharer: off by one: p.seq > plan.sharedSeq",
		"Plan.noteSharer: taken to fail: p.seq > plan.sharedSeq",
		"Plan.noteSharer: dropped: plan.sharersWritten, plan.sharedSeq = 0, p.seq",
		"Plan.noteSharer: taken to fail: p.seq == plan.sharedSeq",
	},
	"only a call that overlaps needs the reserve: the planted races show it": {
		"Stream.PointForAllocation: taken to hold: shared",
		"Stream.PointForAllocation: taken to fail: shared",
		"Stream.PointForAllocation: dropped: reserve, err = s.point(1)",
	},
	"only a launch that overlaps another on its stream does harm: the race detector shows it in the hammers": {
		"Point.dropPlan: taken to hold: p.own",
		"Stream.Announce: taken to hold: own",
	},
	"a test of package fence shows it": {
		"Stream.Announce: dropped: p = s.points.take()",
		"Plan.Drop: dropped: plan.older = nil",
	},
	"a stream whose events are closed is entered no more": {
		"Stream.giveSpare: dropped: s.open.Add(-1 - isOwn)",
	},
	"the lock is held, so nothing comes in between": {
		"tracker.queueFreeLocked: swapped: if err := r.uncapturedForFree(s, b, plan); err != nil { …",
		"tracker.queueFreeLocked: swapped: b.history.Release()",
		"tracker.queueFreeLocked: swapped: b.history.Release() (2)",
		"Point.recordDeferred: swapped: p.state.Store(recorded)",
		"Stream.Record: swapped: p.state.Store(recorded)",
		"Stream.recordAt: swapped: if err := s.port.EventRecord(p.event, s.handle); err != nil { …",
		"Stream.recordAt: swapped: s.place(p)",
		"Stream.wait: swapped: s.clock = s.clock.join(p.clock)",
	},
	"what is enqueued makes the ready point's record first, so nothing lies between two records of it": {
		"Point.recordDeferred: taken to fail: !p.IsDeferred()",
	},
	"an allocation that is not ready and has no ready point is covered by the launch that took it, and dropped before it is counted": {
		"Stream.coveredBy: taken to hold: s.readyPoint.seq == plan.sharedSeq",
	},
	"the search makes it up": {
		"clock.join: dropped: i++",
	},
	"the loop makes it up": {
		"Stream.keepNewest: dropped: s.noted = append(s.noted, dependency{})",
	},
	"the clock of a point covers the point, so the next line notes it": {
		"Stream.QueryCompleted: dropped: s.NoteCompleted(p.seq)",
		"Stream.Synchronize: dropped: s.NoteCompleted(here.seq)",
	},
	"it tells the driver's allocator and tools, and orders nothing": {
		"Stream.QueryCompleted: taken to fail: err == nil && done",
		"Stream.QueryCompleted: dropped: err = s.port.EventSynchronize(p.event)",
		"Stream.QueryMark: taken to fail: learned && mark.state.Load() != synthetic",
		"Stream.QueryMark: dropped: err = s.port.EventSynchronize(mark.event)",
	},
	"what is left behind is cleared before it is used": {
		"History.ReleaseOn: dropped: h.accesses = h.accesses[:0]",
		"Plan.Drop: dropped: *g = goneRefs{}",
		"Plan.Drop: taken to hold: len(plan.deps) > 0",
		"Plan.Drop: dropped: clear(plan.deps)",
	},
	"another line asks the same": {
		"Look.IsCompleted: taken to fail: p.isCompleted()",
		"Look.IsCompleted: taken to fail: u.stream == p.stream && u.seq <= p.seq",
		"Look.IsCompleted: taken to fail: slices.ContainsFunc(l.unfinished, func(u *Point) bool { return u.stream == p.stream && u.seq <= p.seq })",
		"Look.IsCompleted: dropped: l.unfinished = append(l.unfinished, p)",
		"Plan.Frontier: taken to fail: p.needsNoWait()",
		"Stream.keepNewest: taken to fail: s.clock.covers(slot, d.point.seq)",
		"Stream.dominated: taken to fail: s.clock.covers(slot, seq)",
	},
	"a number that no point has is compared with none": {
		"Stream.place: made twice: s.seq++",
	},
	"its number is completed, so there is no wait for it": {
		"Point.FinishUnrecorded: dropped: p.endsAs = synthetic",
	},
	"a block that was written counts by its number, which is of no ready point any more": {
		"History.Announce: taken to hold: a.point.IsDeferred()",
	},
}
