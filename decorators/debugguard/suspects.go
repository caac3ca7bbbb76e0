package debugguard

import (
	"cmp"
	"maps"
	"slices"

	"github.com/fencepost-gpu/fencepost/core"
)

// window is the time between the good comparison and the bad one, both of
// which ran on stream.
type window struct {
	from, to uint64
	stream   core.StreamID
	victim   core.Generation
	// few, if not zero, is the limit where no more were enqueued within.
	few int
	// recalls is set if launches that touched the victim are suspects although the
	// log has forgotten them.
	recalls bool
}

// suspects returns at most limit launches that may have written within w, whether there
// may be more, and whether any of them declared the victim or was given a pointer into it:
//
//   - those that did, then those of them that the log has forgotten and uses, the
//     victim's last, lists;
//   - the others enqueued within w, those of the comparison's own stream first,
//     which all had run;
//   - those enqueued on other streams since: nothing orders the comparison before
//     them, so it may have run behind them. The first of them are the likeliest;
//   - on each stream without any of these the last one enqueued before w, which
//     may still have been running, unless the device was seen to have done it.
//
// Where there is no other they are, in this order, those that the device was seen to
// have done (the work may not be where its launch was declared), and the runtime's
// own copies that only read device memory.
//
// In each group, those that write come before those that declare
// to read. Groups are newest first where nothing else is said. The guard's own
// are not in the log. If none declared the victim no order is likelier than another, and
// they come in that of time.
func (l *launchLog) suspects(w window, uses []core.UseRecord, limit int) (found []core.UseRecord, more, declared bool) {
	all, gone := l.snapshot()
	lost := w.lost(all, gone, uses)
	var inside, after, before []launchRecord
	for _, cleared := range [...]func(launchRecord) bool{
		func(e launchRecord) bool { return e.readsOnly || e.done != 0 && e.done <= w.from },
		func(e launchRecord) bool { return e.readsOnly },
		func(launchRecord) bool { return false },
	} {
		inside, after, before = w.split(slices.DeleteFunc(slices.Clone(all), cleared))
		if len(inside)+len(after)+len(before)+len(lost) > 0 {
			break
		}
	}
	if w.few > 0 && len(inside)+len(lost) <= w.few {
		limit = min(limit, w.few)
	}
	touched := func(e launchRecord) bool {
		return w.victim != 0 && slices.Contains(e.blocks[:], w.victim) || slices.ContainsFunc(uses, func(u core.UseRecord) bool {
			return u.LaunchID != 0 && u.LaunchID == e.use.LaunchID
		})
	}
	slices.SortFunc(inside, func(a, b launchRecord) int {
		return cmp.Or(first(a.mayWrite(), b.mayWrite()),
			first(a.use.Stream == w.stream, b.use.Stream == w.stream), cmp.Compare(b.ended, a.ended))
	})
	slices.SortFunc(after, func(a, b launchRecord) int {
		return cmp.Or(first(a.mayWrite(), b.mayWrite()), cmp.Compare(a.ended, b.ended))
	})
	slices.SortFunc(before, func(a, b launchRecord) int {
		return cmp.Or(first(a.mayWrite(), b.mayWrite()), cmp.Compare(b.ended, a.ended))
	})
	all = slices.Concat(inside, after, before)
	for _, e := range all {
		if touched(e) {
			found = append(found, e.use)
		}
	}
	found = append(found, lost...)
	declared = len(found) > 0
	for _, e := range all {
		if !touched(e) {
			found = append(found, e.use)
		}
	}
	more = len(found) > limit || gone > w.from
	found = found[:min(len(found), limit)]
	if !declared {
		slices.SortStableFunc(found, func(a, b core.UseRecord) int { return a.Time.Compare(b.Time) })
	}
	return found, more, declared
}

// first orders what has a property in front of what has not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// mayWrite reports whether the launch declared to write something.
func (e launchRecord) mayWrite() bool { return e.use.Access.Writes() }

// split returns those enqueued within w, those enqueued on other streams since, and of
// each other stream that has none of them the last one before w.
func (w window) split(launches []launchRecord) (inside, after, before []launchRecord) {
	latest := map[core.StreamID]launchRecord{}
	for _, e := range launches {
		other := e.use.Stream != w.stream
		switch {
		case e.ended > w.from && e.began < w.to:
			inside = append(inside, e)
		case e.ended > w.from && other:
			after = append(after, e)
		case e.ended <= w.from && other && e.ended > latest[e.use.Stream].ended:
			latest[e.use.Stream] = e
		}
	}
	for _, e := range slices.Concat(inside, after) {
		delete(latest, e.use.Stream)
	}
	return inside, after, slices.Collect(maps.Values(latest))
}

// lost are the uses by launches that a log with these launches has not any more, if
// it has lost any that ended in w.
func (w window) lost(launches []launchRecord, gone uint64, uses []core.UseRecord) []core.UseRecord {
	if !w.recalls || gone <= w.from {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(uses), func(u core.UseRecord) bool {
		return u.LaunchID == 0 || slices.ContainsFunc(launches, func(e launchRecord) bool { return e.use.LaunchID == u.LaunchID })
	})
}
