package incident

import (
	"cmp"
	"context"
	"iter"
	"sync"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

const (
	// aMoment is how long a file waits for what surrounds its finding, as long as
	// nobody else is waiting for that, and patience how long the file of a finding
	// does that ends the process.
	aMoment  = 50 * time.Millisecond
	patience = time.Second
	// lastAnswers is how long Close waits for what is still to come.
	lastAnswers = 2 * time.Second
)

// answer is what is known so far of what surrounds a finding.
type answer struct {
	finding core.Finding
	// whole is closed when no more will be known.
	whole chan struct{}

	mu     sync.Mutex
	latest Surroundings
}

func (a *answer) set(s Surroundings) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.latest = s
}

// now is what is known, and whether that is all.
func (a *answer) now() (Surroundings, bool) {
	ended := a.ended() // before it is read: nothing comes behind the end
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.latest, ended
}

func (a *answer) ended() bool {
	select {
	case <-a.whole:
		return true
	default:
		return false
	}
}

// wait gives the answer some time.
func (a *answer) wait(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-a.whole:
	case <-timer.C:
	}
}

// asker asks what surrounds findings, one after the other, in a goroutine that
// lives as long as there is something to ask. Who reports a finding may hold what
// the answer needs, so nobody who reports waits for it.
type asker struct {
	around func(context.Context, core.Finding) iter.Seq[Surroundings] // nil if there is nobody to ask
	// told is called when an answer is whole.
	told func()
	ctx  context.Context
	stop context.CancelFunc

	mu    sync.Mutex
	asked []*answer
	busy  bool
}

// ask returns what will become an answer.
func (q *asker) ask(f core.Finding) *answer {
	a := &answer{finding: f, whole: make(chan struct{})}
	if q.around == nil {
		close(a.whole)
		return a
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.asked = append(q.asked, a)
	if !q.busy {
		q.busy = true
		go q.run()
	}
	return a
}

func (q *asker) run() {
	for {
		a := q.next()
		if a == nil {
			return
		}
		for s := range q.around(q.ctx, a.finding) {
			a.set(s)
			if q.ctx.Err() != nil {
				break
			}
		}
		if q.ctx.Err() == nil {
			close(a.whole)
			q.told()
		}
	}
}

// next is nil if there is nothing to ask, or nobody waits any longer.
func (q *asker) next() *answer {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.asked) == 0 || q.ctx.Err() != nil {
		q.asked, q.busy = nil, false
		return nil
	}
	a := q.asked[0]
	q.asked = q.asked[1:]
	return a
}

// late is an incident whose file is there, and that waits for the rest.
type late struct {
	incident *Incident
	name     string
	answer   *answer
	seq      uint64
}

// What a file says that is not whole.
const (
	stillToCome = "the file is written again when it is known"
	neverCame   = "the runtime did not tell before the writer was closed"
	notAsked    = "too many incidents wait for the runtime to answer, and it was not asked for this one"
)

// unfinished says what is missing of s, and what becomes of it.
func unfinished(s Surroundings, then string) Surroundings {
	s.Incomplete = cmp.Or(s.Incomplete, "what surrounded the finding is not known yet") + "; " + then
	return s
}

// complete writes the file of an incident again, now that all is known that will
// be. Where that fails the file stays as it was; one that was removed for newer
// ones stays away.
func (w *Writer) complete(l *late) {
	s, whole := l.answer.now()
	l.incident.Surroundings = s
	if !whole {
		l.incident.Surroundings = unfinished(s, neverCame)
	}
	l.incident.Completed = instant(w.cfg.now())
	err := w.rewrite(l)
	if !whole || err != nil {
		w.incomplete.Add(1)
	}
	w.settle(l.seq, err)
}
