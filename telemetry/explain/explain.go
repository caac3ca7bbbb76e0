// Package explain says in sentences what a request waited for on the device: which launch of which other request, over
// which block, for how long, and whether data or the use of memory again demanded it.
//
// It looks at what the device did of the launches that are timed (see [oplog.DeviceWork]): all of a sampled trace, and
// some of the others. From the end of the request's last launch it goes back in time, to what that one waited for or
// stood behind, and so on: the critical path. Of a launch of the same request it goes on with that; what another
// request is to blame for is a step of the path.
//
// What it cannot know it says: work that was not timed has a stream and no name, unless it was waited for. Steps
// shorter than [Resolution] are left out, as the device's times do not tell them apart.
package explain

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
)

// Resolution is what the device's times tell apart on a GPU with much to do.
const Resolution = 10 * time.Microsecond

// ErrUnknownTrace is the error for a trace of which no launch is known: it was not sampled, is not done, or is too long ago.
var ErrUnknownTrace = errors.New("no timed launch of the trace is known: it was not sampled, the device has not done it yet, or it is too long ago")

// Kind is what the request did in a step of its critical path.
type Kind uint8

// The kinds.
const (
	// Ran: the device did the request's own launch.
	Ran Kind = iota + 1
	// Held: a launch of the request stood on its stream and waited for work on another one.
	Held
	// Queued: the launch stood behind other work on its own stream.
	Queued
	// Host: the device had nothing of the request to do, until the host had prepared the launch.
	Host
)

var kinds = [...]string{"unknown", "ran", "held", "queued", "host"}

// String is the kind in one word, such as "held".
func (k Kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k]
	}
	return kinds[0]
}

// Launch names a launch, or other work that was enqueued, as far as it is known.
type Launch struct {
	// ID and Name are zero and empty for work that is not known, and for an allocation that made its stream wait: that has
	// the tag Memory.
	ID     uint64
	Name   string
	Memory core.Tag
	Stream core.StreamID
	// On is the number of the stream itself, of a launch that was timed: see [oplog.DeviceWork].
	On int
	// Span is zero if its trace is not sampled.
	Span core.SpanRef
}

func (l *Launch) isKnown() bool { return l.ID != 0 || l.Memory != "" }

// Step is a part of a critical path. From and To are on the host's clock, and the next step begins where it ends, but for
// less than [Resolution].
type Step struct {
	Kind     Kind
	From, To time.Time
	// Launch is the request's, For what it stood behind, of a step that is Held or Queued.
	Launch Launch
	For    Launch
	// Wait is the wait of a step that is Held; nil if it is not known which of several it was. Of a step that is Queued it
	// is the longest of what it stood behind, nil if that did not wait.
	Wait *oplog.DeviceWait
	// Own: the work that it stood behind is the request's own.
	Own bool
}

// Took is the step's duration.
func (s *Step) Took() time.Duration { return s.To.Sub(s.From) }

// isOthers reports whether the step is lost to another's work. What stood behind work that is not known is nobody's.
func (s *Step) isOthers() bool {
	return s.Kind == Held && !s.Own || s.Kind == Queued && s.For.isKnown()
}

// Explanation is a request's critical path on the device.
type Explanation struct {
	Trace [16]byte
	// From is when the host began to prepare the first of the request's timed launches, To when the device had done the
	// last one. Launches is how many they are.
	From, To time.Time
	Launches int
	// Steps are the path, the earliest first.
	Steps []Step
	// Bound is how far the times may be from the host's clock.
	Bound time.Duration
}

// Worst is the step that was lost to other requests' work in the longest piece, nil if there is none.
func (e *Explanation) Worst() (worst *Step) {
	for i := range e.Steps {
		if s := &e.Steps[i]; s.isOthers() && (worst == nil || s.Took() > worst.Took()) {
			worst = s
		}
	}
	return worst
}

// Spent is how much of the path is of a kind, and how much of that was lost to other requests' work.
func (e *Explanation) Spent(k Kind) (all, others time.Duration) {
	for i := range e.Steps {
		if s := &e.Steps[i]; s.Kind == k {
			all += s.Took()
			if s.isOthers() {
				others += s.Took()
			}
		}
	}
	return all, others
}

// Device is what is known of the work of a device, or of several. It is not changed any more, and safe for concurrent use.
type Device struct {
	byID map[uint64]*work
	// lanes and traces are the works of each, by their ends.
	lanes  map[lane][]*work
	traces map[[16]byte][]*work
	// leases are where each was.
	leases map[core.StreamID]lane
}

// lane is a stream of a device, which has one lease after the other.
type lane struct{ ordinal, number int }

// work is what a device did on a lane.
type work struct {
	*oplog.DeviceWork
	lane lane
}

// New takes what a history says of devices, in any order; other events are passed over. It keeps what the events point to.
func New(events []oplog.Event) *Device {
	d := &Device{byID: map[uint64]*work{}, lanes: map[lane][]*work{}, traces: map[[16]byte][]*work{}, leases: map[core.StreamID]lane{}}
	for i := range events {
		e := &events[i]
		if e.Device == nil {
			continue
		}
		w := &work{e.Device, lane{e.Ordinal, e.Device.On}}
		if w.Launch != 0 {
			d.byID[w.Launch] = w
		}
		d.lanes[w.lane] = append(d.lanes[w.lane], w)
		d.leases[w.Stream] = w.lane
		if !w.Span.IsZero() {
			d.traces[w.Span.TraceID] = append(d.traces[w.Span.TraceID], w)
		}
	}
	for _, list := range d.lanes {
		slices.SortFunc(list, byEnd)
	}
	for _, list := range d.traces {
		slices.SortFunc(list, byEnd)
	}
	return d
}

// Explain explains a request by the number of its trace. The error is [ErrUnknownTrace].
func (d *Device) Explain(trace [16]byte) (Explanation, error) {
	p := path{Device: d, own: d.traces[trace], explanation: Explanation{Trace: trace}, taken: map[*work]bool{}}
	if len(p.own) == 0 {
		return p.explanation, ErrUnknownTrace
	}
	e := &p.explanation
	last := p.own[len(p.own)-1]
	e.From, e.To, e.Launches = slices.MinFunc(p.own, func(a, b *work) int { return a.Prepared.Compare(b.Prepared) }).Prepared, last.Ended, len(p.own)
	for at := e.To; last != nil; {
		last, at = p.back(last, at)
	}
	slices.Reverse(e.Steps)
	return *e, nil
}

func byEnd(a, b *work) int {
	return cmp.Or(a.Ended.Compare(b.Ended), cmp.Compare(a.Launch, b.Launch))
}

// path is a critical path that is looked for, from its end.
type path struct {
	*Device
	own         []*work
	explanation Explanation
	taken       map[*work]bool
}

// isOwn reports whether a work that is known is the request's.
func (p *path) isOwn(w *work) bool { return w.Span.TraceID == p.explanation.Trace }

// add puts a step before those that are there, unless it is too short to tell.
func (p *path) add(s Step) {
	if s.Kind == Ran && s.Took() > 0 || s.Took() >= Resolution {
		p.explanation.Steps = append(p.explanation.Steps, s)
	}
}

// back adds the steps of a launch of which the path has what comes after at, and returns where it goes on, nil at its
// beginning.
func (p *path) back(w *work, at time.Time) (*work, time.Time) {
	p.taken[w] = true
	p.explanation.Bound = max(p.explanation.Bound, w.Bound)
	me := launchOf(w.DeviceWork)
	p.add(Step{Kind: Ran, Launch: me, From: earlier(w.Began, at), To: at})
	at = earlier(w.Began, at)
	if w.Unattributed >= Resolution {
		others := slices.ContainsFunc(w.Waits, func(of oplog.DeviceWait) bool { return of.Held < 0 && of.Span.TraceID != p.explanation.Trace })
		p.add(Step{Kind: Held, Launch: me, Own: !others, From: at.Add(-w.Unattributed), To: at})
		at = at.Add(-w.Unattributed)
	}
	for i := len(w.Waits) - 1; i >= 0; i-- {
		of := &w.Waits[i]
		if of.Held < Resolution {
			continue
		}
		from := at.Add(-of.Held)
		step := Step{Kind: Held, Launch: me, For: waitedFor(of), Wait: of, From: from, To: at}
		cause := p.byID[of.For.Launch]
		if of.For.Launch == 0 { // memory to be ready: what was last on that stream until then
			if cause = p.lastOn(of.Stream, from, at); cause != nil {
				step.For = launchOf(cause.DeviceWork)
			}
		}
		step.Own = step.For.Span.TraceID == p.explanation.Trace
		if step.Own && cause != nil && !p.taken[cause] { // what it waited for is what the request did
			step.From = later(from, earlier(cause.Ended, at))
			p.add(step)
			return cause, step.From
		}
		p.add(step)
		at = from
	}
	return p.behind(w, at)
}

// behind adds the steps of a launch that has no wait before at: what it stood behind on its stream, and the host.
func (p *path) behind(w *work, at time.Time) (*work, time.Time) {
	me := launchOf(w.DeviceWork)
	list := p.lanes[w.lane]
	for i := endedBy(list, at.Add(Resolution)) - 1; i >= 0 && at.Sub(w.Prepared) >= Resolution; i-- {
		front := list[i]
		if p.taken[front] || front == w || front.Ended.After(at.Add(Resolution)) { // at goes back
			continue
		}
		ended := earlier(front.Ended, at)
		if ended.Sub(w.Prepared) < Resolution {
			break
		}
		p.add(Step{Kind: Queued, Launch: me, For: Launch{Stream: w.Stream, On: w.On}, From: ended, To: at}) // it was not timed
		if at = ended; p.isOwn(front) {
			return front, at
		}
		from := later(front.Reached, w.Prepared)
		p.add(Step{Kind: Queued, Launch: me, For: launchOf(front.DeviceWork), Wait: longestWait(front.DeviceWork), From: from, To: at})
		at = earlier(from, at)
	}
	p.add(Step{Kind: Queued, Launch: me, For: Launch{Stream: w.Stream, On: w.On}, From: w.Prepared, To: at})
	at = earlier(w.Prepared, at)
	before := p.endedBefore(at)
	from := p.explanation.From
	if before != nil {
		from = earlier(before.Ended, at)
	}
	p.add(Step{Kind: Host, Launch: me, From: from, To: at})
	return before, from
}

// lastOn is the work that ended last on the stream of a lease between two moments, nil if none is known.
func (p *path) lastOn(stream core.StreamID, from, to time.Time) *work {
	on, known := p.leases[stream]
	if !known {
		return nil
	}
	list := p.lanes[on]
	if i := endedBy(list, to.Add(Resolution)) - 1; i >= 0 && list[i].Ended.After(from) {
		return list[i]
	}
	return nil
}

// endedBefore is the request's work that ended last before a moment, and is not on the path yet.
func (p *path) endedBefore(at time.Time) *work {
	for _, w := range slices.Backward(p.own[:endedBy(p.own, at.Add(Resolution))]) {
		if !p.taken[w] {
			return w
		}
	}
	return nil
}

// endedBy is how many works of a list by their ends had ended at a moment.
func endedBy(list []*work, at time.Time) int {
	return sort.Search(len(list), func(i int) bool { return list[i].Ended.After(at) })
}

// longestWait is the wait that held a launch up the longest, nil if none did.
func longestWait(w *oplog.DeviceWork) (longest *oplog.DeviceWait) {
	for i := range w.Waits {
		if of := &w.Waits[i]; of.Held >= Resolution && (longest == nil || of.Held > longest.Held) {
			longest = of
		}
	}
	return longest
}

// waitedFor is what a wait was for, as that says.
func waitedFor(of *oplog.DeviceWait) Launch {
	return Launch{ID: of.For.Launch, Name: of.Launch, Stream: of.Stream, Span: of.Span}
}

func launchOf(w *oplog.DeviceWork) Launch {
	l := Launch{ID: w.Launch, Name: w.Name, Stream: w.Stream, On: w.On, Span: w.Span}
	if w.Launch == 0 && len(w.Waits) > 0 {
		l.Memory = w.Waits[0].Tag
	}
	return l
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Request is a request and what it lost to others' work on its critical path; see [Device.MostHeldUp].
type Request struct {
	Trace [16]byte
	Lost  time.Duration
	Worst Step
}

// MostHeldUp are the requests that lost most to others' work, at most so many, the worst first.
func (d *Device) MostHeldUp(most int) (list []Request) {
	for trace := range d.traces {
		e, _ := d.Explain(trace) // it is known
		if worst := e.Worst(); worst != nil {
			_, held := e.Spent(Held)
			_, queued := e.Spent(Queued)
			list = append(list, Request{trace, held + queued, *worst})
		}
	}
	slices.SortFunc(list, func(a, b Request) int {
		return cmp.Or(cmp.Compare(b.Lost, a.Lost), bytes.Compare(a.Trace[:], b.Trace[:]))
	})
	return list[:min(most, len(list))]
}

// traceText is the trace's number in hexadecimal.
func traceText(t [16]byte) string { return fmt.Sprintf("%x", t[:]) }
