package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
)

// Sentence says the worst of it: what the request lost most to, or that it lost nothing to others.
func (e *Explanation) Sentence() string {
	took := short(e.To.Sub(e.From))
	worst := e.Worst()
	if worst == nil {
		ran, _ := e.Spent(Ran)
		said := fmt.Sprintf("Request %s waited for no other request's work on the device: of %s its own launches ran %s", traceText(e.Trace), took, short(ran))
		if queued, _ := e.Spent(Queued); queued > 0 {
			said += fmt.Sprintf(", and stood %s on their streams behind work that was not timed, or for their turn on the device", short(queued))
		}
		return said + "."
	}
	return fmt.Sprintf("Request %s took %s on the device and waited %s of that%s", traceText(e.Trace), took, short(worst.Took()), worst.cause())
}

// String is the sentence, and the path step by step.
func (e *Explanation) String() string {
	var b strings.Builder
	fmt.Fprintln(&b, e.Sentence())
	for i := range e.Steps {
		s := &e.Steps[i]
		fmt.Fprintf(&b, "  %10s  %-9s %s\n", "+"+short(s.From.Sub(e.From)), short(s.Took()), s.Text())
	}
	ran, _ := e.Spent(Ran)
	host, _ := e.Spent(Host)
	held, heldByOthers := e.Spent(Held)
	queued, queuedByOthers := e.Spent(Queued)
	fmt.Fprintf(&b, "In all: %d timed launches, ran %s, held up %s, queued %s (for other requests %s), host %s; times are within %s of the host's clock.\n",
		e.Launches, short(ran), short(held), short(queued), short(heldByOthers+queuedByOthers), short(host), short(max(e.Bound, time.Microsecond)))
	return b.String()
}

// WaitsOf says in words for what a launch or an allocation waited, and how long, of the waits that took [Resolution] and more.
func WaitsOf(w *oplog.DeviceWork) (list []string) {
	me := launchOf(w)
	for i := range w.Waits {
		if of := &w.Waits[i]; of.Held >= Resolution {
			step := Step{Kind: Held, Launch: me, For: waitedFor(of), Wait: of, Own: !of.Span.IsZero() && of.Span.TraceID == w.Span.TraceID}
			list = append(list, short(of.Held)+": "+step.Text())
		}
	}
	return list
}

// Text says a step in words, without its times.
func (s *Step) Text() string {
	switch s.Kind {
	case Ran:
		return s.Launch.text() + " ran on stream " + s.Launch.Stream.String()
	case Held, Queued:
		return s.Launch.text() + " waited" + s.cause()
	case Host:
		return "nothing to do until the host prepared " + s.Launch.text()
	}
	return s.Kind.String()
}

// cause is what a step waited for and why, from " for" on.
func (s *Step) cause() string {
	w := s.Wait
	switch {
	case s.Kind == Queued && !s.For.isKnown():
		return fmt.Sprintf(" on its own stream %v behind work that was not timed, or for its turn on the device.", s.Launch.Stream)
	case s.Kind == Queued && w != nil:
		of := waitedFor(w)
		return fmt.Sprintf(" behind %s, which is in front of it on stream s%d of the device and itself waited %s%s", s.For.of(s.Own), s.For.On, short(w.Held), because(w, &of, false, &s.For))
	case s.Kind == Queued:
		return fmt.Sprintf(" behind %s, which is in front of it on stream s%d of the device: what is on one stream is done in order.", s.For.of(s.Own), s.For.On)
	case w == nil:
		return " for several launches, the fifth and later of its waits, which are not told apart."
	}
	return because(w, &s.For, s.Own, &s.Launch)
}

// because says which work a launch waited for, and why.
func because(w *oplog.DeviceWait, of *Launch, own bool, launch *Launch) string {
	on := fmt.Sprintf(" for %s on stream %v", of.of(own), of.Stream)
	if w.Access == 0 {
		return fmt.Sprintf("%s, because memory that was used there before is used again for %q (memory used again).", on, string(w.Tag))
	}
	block := fmt.Sprintf("block %q (generation %v)", string(w.Tag), w.Generation)
	switch {
	case w.For.Launch != 0:
		return fmt.Sprintf("%s, because of %s: %s (data).", on, block, conflict(w.Access, w.Own, launch.text()))
	case w.Access == core.ReadWrite:
		return fmt.Sprintf("%s, because of %s, of which a use there was recorded (data).", on, block)
	}
	return fmt.Sprintf("%s, because of %s: its memory was to be ready behind what was enqueued there before (memory used again).", on, block)
}

// conflict says why the two accesses of a block have an order.
func conflict(access, own core.Access, launch string) string {
	switch {
	case access == core.Read:
		return fmt.Sprintf("it reads what %s writes", launch)
	case own == core.Write:
		return fmt.Sprintf("it writes what %s writes, too", launch)
	}
	return fmt.Sprintf("it writes what %s reads", launch)
}

// of is the launch, and of which request it is.
func (l *Launch) of(own bool) string {
	switch {
	case own:
		return l.text() + " of the same request"
	case !l.Span.IsZero():
		return l.text() + " of request " + traceText(l.Span.TraceID)
	case l.isKnown():
		return l.text() + " of a request that is not sampled"
	}
	return "work that was not timed"
}

func (l *Launch) text() string {
	switch {
	case l.Name != "":
		return fmt.Sprintf("launch %d %q", l.ID, l.Name)
	case l.ID != 0:
		return fmt.Sprintf("launch %d", l.ID)
	case l.Memory != "":
		return fmt.Sprintf("the allocation of %q", string(l.Memory))
	}
	return "work"
}

// short is a duration with three digits.
func short(d time.Duration) string {
	unit := time.Duration(1)
	for d.Abs() >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit).String()
}
