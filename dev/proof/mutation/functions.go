package mutation

import "strings"

// functions are those that the operators are applied to, by file: what decides about order and
// about references on events, from the use of a block to the end of its memory. Of the engine that
// is whole functions. Of a resource it is often one place in a function that does more: then its
// text stands behind a colon, and the operators are applied to what is called so there.
var functions = map[string][]string{
	"internal/fence/access.go": {"Access.isBefore", "Access.covers"},
	"internal/fence/clock.go":  {"clock.covers", "clock.raise", "clock.join", "clock.copyFrom"},
	"internal/fence/history.go": {
		"History.Announce", "History.AddRecorded", "History.prune", "History.covered", "History.UsedOnlyOn", "History.PlanFree", "History.Release", "History.ReleaseOn",
		"History.Watch", "History.HasOpen",
	},
	"internal/fence/point.go": {
		"Point.IsOpen", "Point.IsDeferred", "Point.isPlaced", "Point.isWithdrawn", "Point.end", "Point.tellWatcher", "Point.watch", "Point.ReleaseMany", "Point.lose", "Point.isCompleted", "Point.needsNoWait",
		"Point.noteClockCompleted",
	},
	"internal/fence/order.go": {"Order.noteCompleted"},
	"internal/fence/stream.go": {
		"Stream.EnterOwn", "Stream.LeaveOwn", "Stream.giveSpare", "Stream.Here", "Stream.Record", "Stream.recordAt", "Stream.place", "Stream.wait", "Stream.QueryCompleted", "Stream.QueryMark",
	},
	"internal/fence/frontier.go": {"Plan.Frontier", "Frontier.IsCompleted", "Frontier.IsBefore", "Frontier.AddTo", "Look.IsCompleted"},
	"internal/fence/plan.go":     {"Plan.noteSharer", "Plan.add", "Plan.releaseLater", "Plan.Drop", "Plan.queue", "Stream.keepNewest", "Stream.dominated"},
	"internal/fence/launch.go": {
		"Stream.Announce", "Point.Fence", "Point.dropPlan", "Stream.queueWaits", "Point.Finish", "Point.FinishUnrecorded", "Point.Withdraw", "Point.End", "Stream.Synchronize",
	},
	"internal/fence/deferred.go": {
		"Stream.PointForAllocation", "Point.holdDeferred", "Stream.placeReadyPoint", "Stream.ConfirmReadyPoint", "Stream.flush", "Stream.coveredBy",
		"Stream.detach", "Point.recordDeferred", "Plan.flushOthers",
	},
	"internal/fence/giveup.go": {"Stream.GiveUp: s.final.Store(final)", "Stream.DropFinalEvent: final.Release()"},
	"cuda/adopt.go":            {"StreamPool.forget: !done"},
	"cuda/free.go": {
		"block.awaitLaunches: b.history.Watch()", "tracker.launchEnded: !b.mayBeFreed()", "block.mayBeFreed", "tracker.queueFree: b.history.UsedOnlyOn(&s.Stream)",
		"tracker.queueFreeBehind", "tracker.queueFreeLocked",
	},
	"cuda/freequeue.go": {"freeQueue.markAll", "freeQueue.markCompleted: q.mark.Release()", "freeQueue.setAside: p.block.isIsolated()", "freeQueue.setAside: q.awaitUnmap(p)"},
	"cuda/reap.go":      {"tracker.lookAtMark"},
	"cuda/tracker.go":   {"tracker.allocateLocked: s.Open() > 0", "tracker.allocateLocked: _ = s.Flush()"},
	"cuda/uses.go":      {"tracker.announceOnBlocks: holder != nil", "tracker.announceOnBlocks: p.NotAnnounced(len(in.Uses) - i)", "tracker.AbortUse: l.point.Withdraw()", "tracker.RecordUse: p != nil"},
	"cuda/arena.go": {
		"arena.giveBehind: l.newest = max(l.newest, mark)", "arena.giveLocked: l.fit.Mark(s.Behind())", "arena.covered", "arena.completed",
	},
	"cuda/kept.go": {
		"keeping.revive: s.Open() > 0",
	},
	"cuda/serve.go": {
		"tracker.takeAtHand: s.Open() > 0", "tracker.isAlone: !b.history.HasOpen()",
		"tracker.isAlone: b.history.UsedOnlyOn(&s.Stream)",
		"stream.retire: b.history.ReleaseOn(&s.Stream)",
	},
}

// ordered are the functions in which the order of statements is what they are about.
var ordered = []string{"Stream.recordAt", "Stream.place", "Stream.wait", "Point.recordDeferred", "Stream.Record", "tracker.queueFreeLocked"}

// places are the texts that a function is mutated at, nil for all, and whether it is mutated at all.
func places(file, fn string) (texts []string, mutated bool) {
	for _, entry := range functions[file] {
		name, text, one := strings.Cut(entry, ": ")
		if name != fn {
			continue
		}
		if mutated = true; one {
			texts = append(texts, text)
		}
	}
	return texts, mutated
}
