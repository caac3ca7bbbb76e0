package incident

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync/atomic"
	"time"
)

// lastNumber numbers the incidents of the process, so that runtimes may share a
// folder.
var lastNumber atomic.Uint64

// run writes until the writer is closed and nothing waits.
func (w *Writer) run() {
	defer close(w.ended)
	defer w.asker.stop()
	defer func() {
		if w.closing != nil {
			w.closing.Stop()
		}
	}()
	for {
		it, l, state := w.next()
		switch state {
		case nothingToDo:
			<-w.wake
		case anItem:
			w.handle(&it)
		case aLate:
			w.complete(l)
		case ended:
			return
		}
	}
}

type state int

const (
	nothingToDo state = iota
	anItem
	aLate
	ended
)

// errAbandoned is what becomes of items after a Close that gave up.
var errAbandoned = errors.New("the writer was closed before there was time for it")

// next takes the first item, or else a late one that can be completed: one that
// is known whole, or any when nobody waits for it any longer.
func (w *Writer) next() (item, *late, state) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending) > 0 {
		it := w.pending[0]
		w.pending[0] = item{}
		w.pending = w.pending[1:]
		return it, nil, anItem
	}
	w.pending = nil // gives back what a storm took
	for i, l := range w.lates {
		if l.answer.ended() || w.asker.ctx.Err() != nil {
			w.lates = slices.Delete(w.lates, i, i+1)
			return item{}, l, aLate
		}
	}
	switch {
	case !w.closed:
	case len(w.lates) == 0:
		return item{}, nil, ended
	case w.closing == nil:
		w.closing = time.AfterFunc(lastAnswers, func() { w.asker.stop(); w.nudge() })
	}
	return item{}, nil, nothingToDo
}

// handle writes an item, and keeps what is to come.
func (w *Writer) handle(it *item) {
	l, path, err := w.write(it)
	w.mu.Lock()
	switch {
	case errors.Is(err, errAbandoned):
		w.dropped.Add(1)
	case path == "":
		w.failed.Add(1)
	default:
		w.written.Add(1)
		w.paths = append(w.paths, path)
		w.paths = slices.Delete(w.paths, 0, max(0, len(w.paths)-w.cfg.MaxFiles))
	}
	if it.reply != nil {
		it.reply <- outcome{path, err}
	}
	if l != nil && path != "" {
		w.lates = append(w.lates, l)
		w.err = cmp.Or(w.err, err)
		w.mu.Unlock()
		return
	}
	w.mu.Unlock()
	w.settle(it.seq, err)
}

// settle notes that an item is handled, and tells who waits for it.
func (w *Writer) settle(seq uint64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = cmp.Or(w.err, err)
	delete(w.open, seq)
	w.waiting = slices.DeleteFunc(w.waiting, func(x waiter) bool {
		for open := range w.open {
			if open <= x.last {
				return false
			}
		}
		close(x.ready)
		return true
	})
}

func (w *Writer) isAbandoned() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.abandoned
}

// write writes one incident, with what is known of its surroundings in a moment;
// if that is not all, it returns what is late. Another process may take the very
// name in the folder that both share; then it gets another number.
func (w *Writer) write(it *item) (l *late, path string, err error) {
	if w.isAbandoned() {
		return nil, "", errAbandoned
	}
	in := &Incident{Schema: Schema, Number: it.number, Finding: FromFinding(it.finding), Repeats: it.repeats, Process: thisProcess()}
	l = w.surround(in, it)
	for range 3 {
		text, err := in.fit(w.limit())
		if err != nil {
			return nil, "", err
		}
		name := fileName(&it.finding, in.Number)
		path, removed, err := w.folder.Add(name, text)
		w.removed.Add(uint64(removed))
		if !errors.Is(err, fs.ErrExist) {
			if l != nil {
				l.name = name
			}
			return l, path, err
		}
		in.Number = lastNumber.Add(1)
	}
	return nil, "", fs.ErrExist
}

// surround asks what surrounds a finding, and waits for it where nobody waits
// already: a runtime that is stuck delays one file and not each.
func (w *Writer) surround(in *Incident, it *item) *late {
	w.mu.Lock()
	waiting := len(w.lates)
	w.mu.Unlock()
	if waiting >= w.cfg.Queue {
		in.Incomplete = notAsked
		w.incomplete.Add(1)
		return nil
	}
	if w.asker.ctx.Err() != nil {
		in.Surroundings = unfinished(Surroundings{}, neverCame)
		w.incomplete.Add(1)
		return nil
	}
	a := w.asker.ask(it.finding)
	switch {
	case it.reply != nil:
		a.wait(patience)
	case waiting == 0:
		a.wait(aMoment)
	}
	s, whole := a.now()
	if whole {
		in.Surroundings = s
		return nil
	}
	in.Surroundings = unfinished(s, stillToCome)
	return &late{incident: in, answer: a, seq: it.seq}
}

// rewrite puts a completed incident in the place of what was written at first.
func (w *Writer) rewrite(l *late) error {
	if w.isAbandoned() {
		return nil // it says that it is not whole
	}
	text, err := l.incident.fit(w.limit())
	if err != nil {
		return err
	}
	removed, err := w.folder.Replace(l.name, text)
	w.removed.Add(uint64(removed))
	if errors.Is(err, fs.ErrNotExist) { // it was the oldest
		return nil
	}
	return err
}

func (w *Writer) limit() int64 { return min(w.cfg.MaxBytes, MaxFile) }

// fit encodes the incident, without its oldest history if it is too long.
func (in *Incident) fit(limit int64) ([]byte, error) {
	for {
		text, err := in.Encode()
		switch {
		case err != nil || int64(len(text)) <= limit:
			return text, err
		case len(in.History) == 0:
			return nil, fmt.Errorf("an incident of %d bytes: %w", len(text), errTooLarge)
		}
		in.History = in.History[(len(in.History)+1)/2:]
	}
}
