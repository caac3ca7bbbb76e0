package cuda

import (
	"cmp"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/internal/devtime"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
)

// A launch in a sampled trace is timed, and an allocation there that waits for other streams' uses of its memory; of the
// others on a stream one in so many. The device notes when it comes to the launch's waits, when each is over, and when
// the work is done, by events with timing, which order nothing. Reaps see what is done, and tell the sink.

// attributedWaits is how many waits of a launch are timed each for itself.
const attributedWaits = 4

// The events of a timed launch: before the waits, after each of the first ones, after the last one, and at the end.
const (
	lastWait = 1 + attributedWaits
	endMark  = lastWait + 1
	allMarks = endMark + 1
)

// mostTimed is how many launches are timed at once, at most: so many events there may be.
const mostTimed = 1 << 13

// timing is a launch that is timed. Until the launch has ended it is its goroutine's.
type timing struct {
	drv    driver.Driver
	on     *stream
	events [allMarks]driver.Event
	// marks is how many were recorded before the end; after lastWait they share an event. failed: one was not.
	marks  int
	failed bool
	// ready is when the host had recorded the last of them.
	ready monotime.Instant
	now   func() monotime.Instant

	// at is when the device came to the first of them, as far as that is known.
	at    []monotime.Instant
	bound time.Duration
	work  oplog.DeviceWork
	// followed is the lease of the work if an account follows it, or nil; own are those of the waits that are for leases
	// that the same follows.
	followed *Lease
	own      []bool
}

// Mark is a step of the launch before its work.
func (t *timing) Mark(s driver.Stream) {
	t.record(min(t.marks, lastWait), s)
	t.marks++
	t.ready = t.now()
}

func (t *timing) record(mark int, s driver.Stream) {
	if t.failed {
		return
	}
	var err error
	if t.events[mark] == 0 {
		t.events[mark], err = t.drv.TimingEventCreate()
	}
	if err == nil {
		err = t.drv.EventRecord(t.events[mark], s)
	}
	t.failed = err != nil
}

// end is the last mark. Nothing is recorded in a capture.
func (t *timing) end() {
	if t.on.AsksDriver() {
		capturing, err := t.on.QueryCapturing()
		t.failed = t.failed || capturing || err != nil
	}
	t.record(endMark, t.on.Handle())
}

// mark is the event of the i-th time that is known of the launch, ok is false behind the end.
func (t *timing) mark(i int) (e driver.Event, ok bool) {
	switch before := min(t.marks, endMark); {
	case i < before:
		return t.events[i], true
	case i == before:
		return t.events[endMark], true
	}
	return 0, false
}

// destroy gives the events back; those that the driver would not take stay.
func (t *timing) destroy() error { return devtime.Destroy(t.drv, t.events[:]) }

// countdown chooses one in so many, at irregular distances: of work that repeats itself it would else always choose the same.
type countdown struct{ left, state uint32 }

// due reports whether this is one: one of oneIn on average, none of zero. The distances are between 1 and twice oneIn
// less 1, all as likely, by the linear congruential generator ranqd1 of Numerical Recipes.
func (c *countdown) due(oneIn uint32) bool {
	if c.left == 0 {
		if oneIn == 0 {
			return false
		}
		c.state = c.state*1664525 + 1013904223
		c.left = 1 + uint32(uint64(c.state)*(2*uint64(oneIn)-1)>>32)
	}
	c.left--
	return c.left == 0
}

// deviceTimes are the launches of a tracker that are timed.
type deviceTimes struct {
	drv   driver.Driver
	table *streamTable
	sink  oplog.DeviceWorkSink
	// oneIn is of how many launches that are not sampled one is timed; zero for none.
	oneIn uint32
	// waiting is how many are outstanding.
	waiting atomic.Int64

	mu sync.Mutex
	// spare have their events, of all that were made. outstanding have ended on the host, in that order.
	spare       []*timing
	made        int
	outstanding []*timing
	closed      bool

	// lost is how many launches the sink is still to be told of as lost.
	lost atomic.Int64
	// works are free descriptions of what was done, for the next that are told.
	works []*oplog.DeviceWork

	// collecting is held by who looks for what is done, with the clock and pass, the number of the
	// look. The sink is told without it.
	collecting sync.Mutex
	clock      *devtime.Clock
	lags       driver.LaunchLags
	pass       uint64
	// looked is a list that a look uses again.
	looked []*timing
}

// newDeviceTimes is nil without a sink.
func newDeviceTimes(drv driver.Driver, table *streamTable, sink oplog.DeviceWorkSink, oneIn uint32) *deviceTimes {
	if sink == nil {
		return nil
	}
	return &deviceTimes{drv: drv, table: table, sink: sink, oneIn: oneIn, clock: devtime.New(drv), lags: driver.LaunchLagsOf(drv)}
}

// start begins to time a launch of a trace; nil if too many are: the caller lets tellLost tell.
func (d *deviceTimes) start(on *stream, of *core.SpanContext) *timing {
	t := d.take()
	if t == nil {
		d.lost.Add(1)
		return nil
	}
	t.on, t.marks, t.failed, t.at, t.bound, t.followed, t.own = on, 0, false, t.at[:0], 0, nil, t.own[:0]
	t.work.Span, t.work.Weight = core.SpanRef{}, uint64(d.oneIn)
	if of.Sampled {
		t.work.Span, t.work.Weight = of.SpanRef, 1
	}
	t.work.On, t.work.Prepared = on.Slot(), d.clock.Now().Time()
	return t
}

// startReuse begins to time the waits by which an allocation makes its stream come after other uses of its memory; nil if
// it is not timed. The stream is locked, so the next reap tells what is lost.
func (d *deviceTimes) startReuse(s *stream, req *core.Request) *timing {
	if d == nil {
		return nil
	}
	if req.Span.IsZero() && !s.timeReuse.due(d.oneIn) {
		return nil
	}
	t := d.start(s, &core.SpanContext{SpanRef: req.Span, Sampled: !req.Span.IsZero()})
	if t != nil {
		t.work.Launch, t.work.Name, t.work.Stream, t.work.Waits = 0, "", req.Stream, t.work.Waits[:0]
	}
	return t
}

// reused is when the waits of a reuse were queued, if there were any.
func (d *deviceTimes) reused(t *timing) {
	if len(t.work.Waits) == 0 && !t.failed {
		d.recycle(t)
		return
	}
	t.end()
	d.enqueued(t)
}

func (d *deviceTimes) take() *timing {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.spare); n > 0 && !d.closed {
		t := d.spare[n-1]
		d.spare = d.spare[:n-1]
		return t
	}
	if d.closed || d.made == mostTimed {
		return nil
	}
	d.made++
	return &timing{drv: d.drv, now: d.clock.Now, at: make([]monotime.Instant, 0, allMarks)}
}

// launched is the end of a launch on the host, whose intent tells what it waits for.
func (d *deviceTimes) launched(t *timing, l *launch) {
	w, in := &t.work, &l.Intent
	t.followed = l.followed
	w.Launch, w.Name, w.Stream, w.Waits = in.ID, in.Launch, in.Stream, w.Waits[:0]
	for i := range in.Waited {
		of := &in.Waited[i]
		u := &in.Uses[of.Use]
		w.Waits = append(w.Waits, oplog.DeviceWait{Stream: of.Stream, For: of.For, Launch: of.Launch, Span: of.Span,
			Generation: u.Block.Generation, Tag: u.Tag, Access: of.Access, Own: u.Access, Held: -1})
		d.waitsFor(t, of.Stream)
	}
	d.enqueued(t)
}

// waitsFor notes whether the newest wait is for work of the same account.
func (d *deviceTimes) waitsFor(t *timing, lease core.StreamID) {
	if t.followed == nil {
		return
	}
	var of *Lease
	if on := d.table.leases.Load().find(lease); on != nil {
		of = on.followedAs(lease)
	}
	t.own = append(t.own, of != nil && of.account == t.followed.account)
}

// enqueued is when all that a timing times was enqueued.
func (d *deviceTimes) enqueued(t *timing) {
	d.mu.Lock()
	if late := d.closed || t.failed; !late {
		d.outstanding = append(d.outstanding, t)
		d.waiting.Store(int64(len(d.outstanding)))
		d.mu.Unlock()
		return
	}
	d.mu.Unlock()
	d.lose(t)
}

// lose gives up what is timed: the caller lets tellLost tell, once it holds no lock.
func (d *deviceTimes) lose(t *timing) {
	d.lost.Add(1)
	d.recycle(t)
}

// tellLost tells the sink how many were lost since it was last told. No lock may be held.
func (d *deviceTimes) tellLost() {
	if d.lost.Load() == 0 {
		return
	}
	if n := d.lost.Swap(0); n > 0 {
		usercode.Call(sinkOfTimes, func() { d.sink.Lost(int(n)) })
	}
}

// sinkOfTimes is the sink's name where it panics.
const sinkOfTimes = "StreamPoolConfig.DeviceWork"

func (d *deviceTimes) recycle(t *timing) {
	t.on = nil
	if !d.keep(t) {
		_ = t.destroy() // which the device's context does at the latest
	}
}

// keep reports false after the end.
func (d *deviceTimes) keep(t *timing) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.spare = append(d.spare, t)
	}
	return !d.closed
}

// outstandingAny reports whether a reap may find something done.
func (d *deviceTimes) outstandingAny() bool {
	return d != nil && (d.waiting.Load() > 0 || d.lost.Load() > 0)
}

// collect tells of what the device has done since the last look, and does not wait for it. If the driver fails, the next one
// goes on.
func (d *deviceTimes) collect() error {
	if !d.outstandingAny() {
		return nil
	}
	did, err := d.lookAtAll()
	defer d.tellLost() // also where the sink ends the goroutine
	d.tell(did)
	return err
}

// lookAtAll returns what the device has done since the last look. The accounts know of it when it
// returns, and the sink is told then, without a lock: what it calls may take its time, or reap.
func (d *deviceTimes) lookAtAll() (did []*oplog.DeviceWork, err error) {
	d.collecting.Lock()
	defer d.collecting.Unlock()
	renewed, steady := false, true
	if d.clock.Due() {
		switch steady, err = d.clock.Renew(); {
		case errors.Is(err, devtime.ErrBusy):
			return nil, nil // the next look tells
		case errors.Is(err, core.ErrSticky):
			d.loseAll()
			return nil, err
		case err != nil:
			return nil, err
		}
		renewed = true
	}
	d.mu.Lock()
	list := d.outstanding
	d.outstanding = d.looked[:0]
	d.mu.Unlock()
	left := list[:0]
	d.pass++
	for _, t := range list {
		done := false
		if steady && t.on.timesSeen != d.pass {
			done = d.look(t, renewed)
		}
		switch {
		case !steady || t.failed:
			d.lose(t)
		case done:
			did = append(did, d.done(t))
		default:
			t.on.timesSeen = d.pass // what is behind it there is not done either
			left = append(left, t)
		}
	}
	clear(list[len(left):])
	d.mu.Lock()
	d.looked = d.outstanding
	d.outstanding = append(left, d.outstanding...)
	d.waiting.Store(int64(len(d.outstanding)))
	d.mu.Unlock()
	return did, nil
}

// tell tells the sink. No lock may be held.
func (d *deviceTimes) tell(did []*oplog.DeviceWork) {
	if len(did) == 0 {
		return
	}
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.works = append(d.works, did[:min(len(did), mostWorks-min(mostWorks, len(d.works)))]...)
	}()
	usercode.All(did, func(w *oplog.DeviceWork) { usercode.Call(sinkOfTimes, func() { d.sink.Done(w) }) })
}

// mostWorks is how many free descriptions are kept.
const mostWorks = 64

// look reports whether the launch is done, and then knows its times. Those of one that takes long are looked for when
// the clock is new: later they are too long ago.
func (d *deviceTimes) look(t *timing, all bool) (done bool) {
	done, err := d.drv.EventQuery(t.events[endMark])
	for err == nil && (done || all) {
		e, more := t.mark(len(t.at))
		if !more {
			break
		}
		passed := done
		if !passed {
			if passed, err = d.drv.EventQuery(e); err != nil || !passed {
				break
			}
		}
		var at monotime.Instant
		var bound time.Duration
		if at, bound, err = d.clock.At(e); err == nil {
			if n := len(t.at); n > 0 {
				at = max(at, t.at[n-1])
			}
			t.at, t.bound = append(t.at, at), max(t.bound, bound)
		}
	}
	t.failed = err != nil
	return done
}

// done is what the sink is told of a launch whose times are known, which then times another.
func (d *deviceTimes) done(t *timing) *oplog.DeviceWork {
	w, last := &t.work, len(t.at)-1
	ended := max(t.at[last]-monotime.Instant(d.lags.End), t.at[last-1])
	began := min(max(t.at[last-1]+monotime.Instant(d.lags.Begin), t.ready+monotime.Instant(d.lags.Call)), ended)
	w.Reached, w.Began, w.Ended, w.Bound = t.at[0].Time(), began.Time(), ended.Time(), t.bound
	w.Unattributed = 0
	for i := range w.Waits {
		if i == attributedWaits {
			w.Unattributed = t.at[last-1].Since(t.at[i])
			break
		}
		w.Waits[i].Held = t.at[i+1].Since(t.at[i])
	}
	t.note()
	told := d.freeWork()
	*told, t.work = t.work, *told
	d.recycle(t)
	return told
}

func (d *deviceTimes) freeWork() *oplog.DeviceWork {
	d.mu.Lock()
	defer d.mu.Unlock()
	if last := len(d.works) - 1; last >= 0 {
		w := d.works[last]
		d.works = d.works[:last]
		return w
	}
	return new(oplog.DeviceWork)
}

// note tells the account. Of the waits that are not timed each for itself it is not known how long its own were.
func (t *timing) note() {
	w := &t.work
	if w.Job, w.HeldByOthers = "", 0; t.followed == nil {
		return
	}
	for i, own := range t.own {
		if !own && i < attributedWaits {
			w.HeldByOthers += w.Waits[i].Held
		} else if !own {
			w.HeldByOthers += w.Unattributed
			break
		}
	}
	w.Job = t.followed.tag
	t.followed.account.Note(func(j *core.JobAccount) {
		j.WaitedOnDevice, j.TimedLaunches = j.WaitedOnDevice+w.HeldByOthers, j.TimedLaunches+min(w.Launch, 1)
	})
	t.followed = nil
}

// loseAll gives up what is outstanding: the caller lets tellLost tell.
func (d *deviceTimes) loseAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost.Add(int64(len(d.outstanding)))
	d.spare = append(d.spare, d.outstanding...)
	d.outstanding = d.outstanding[:0]
	d.waiting.Store(0)
}

// close tells what is done, and gives the events back. After an error of the driver's it may be called again.
func (d *deviceTimes) close() error {
	if d == nil {
		return nil
	}
	_ = d.collect()    // what it could not tell is lost
	defer d.tellLost() // with no lock
	d.collecting.Lock()
	defer d.collecting.Unlock()
	d.mu.Lock()
	d.closed = true // a launch that ends from now on gives its events back itself
	d.mu.Unlock()
	d.loseAll()
	err := d.clock.Close()
	for _, t := range d.spare { // to which nothing is added any more; once more, if that was tried
		err = cmp.Or(err, t.destroy())
	}
	return err
}
