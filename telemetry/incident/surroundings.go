package incident

import (
	"cmp"
	"math"
	"sync/atomic"
	"time"
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
	// whole is closed when no more will be known.
	whole  chan struct{}
	latest atomic.Pointer[Surroundings] // nil if nothing is known
}

// now is what is known, and whether that is all.
func (a *answer) now() (s Surroundings, whole bool) {
	select {
	case <-a.whole: // before it is read: nothing comes behind the end
		whole = true
	default:
	}
	if latest := a.latest.Load(); latest != nil {
		s = *latest
	}
	return s, whole
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

// ask queries what surrounds a finding, after earlier ones. A goroutine that reports
// a finding may hold locks that the answer needs, so no reporter waits for it.
func (w *Writer) ask(it *item) *answer {
	a := &answer{whole: make(chan struct{})}
	if w.cfg.Around == nil {
		close(a.whole)
		return a
	}
	w.asking.Do(func() {
		if w.awaiting.Err() != nil {
			return
		}
		for s := range w.cfg.Around(w.awaiting, it.finding) {
			a.latest.Store(&s)
			if w.awaiting.Err() != nil {
				return
			}
		}
		if w.awaiting.Err() == nil {
			close(a.whole)
		}
	}, math.MaxInt)
	return a
}

// What a file says that is not whole.
const (
	stillToCome = "the file is written again when it is known"
	neverCame   = "the runtime did not tell before the writer was closed"
	notQueried  = "too many incidents wait for the runtime to answer, and it was not asked for this one"
)

// partly says what is missing of s, and what becomes of it.
func partly(s Surroundings, then string) Surroundings {
	s.Incomplete = cmp.Or(s.Incomplete, "what surrounded the finding is not known yet") + "; " + then
	return s
}

// await waits until the answer is whole, or nobody waits for it any longer, and has
// the file written again.
func (w *Writer) await(it *item) {
	select {
	case <-it.answer.whole:
	case <-w.awaiting.Done():
	}
	if !w.writing.Do(func() { w.complete(it) }, math.MaxInt) {
		w.complete(it) // it was abandoned, and nothing is written
	}
}

// complete writes the file of an incident again, now that all is known that will
// be. Where that fails the file stays as it was; one that was removed for newer
// ones stays away.
func (w *Writer) complete(it *item) {
	s, whole := it.answer.now()
	if !whole {
		s = partly(s, neverCame)
	}
	it.incident.Surroundings, it.incident.Completed = s, instant(w.cfg.now())
	err := w.rewrite(it)
	if !whole || err != nil {
		w.incomplete.Add(1)
	}
	w.mu.Lock()
	w.toComplete--
	w.mu.Unlock()
	w.finish(it, err)
}
