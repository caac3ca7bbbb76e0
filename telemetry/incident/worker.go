package incident

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// lastNumber numbers the incidents of the process, so that runtimes may share a
// folder.
var lastNumber atomic.Uint64

// run writes until the writer is closed and nothing waits.
func (w *Writer) run() {
	defer close(w.ended)
	for {
		it, state := w.next()
		switch state {
		case queueEmpty:
			<-w.wake
			continue
		case queueEnded:
			return
		}
		path, err := w.write(&it)
		w.finish(&it, path, err)
	}
}

type queueState int

const (
	queueItem queueState = iota
	queueEmpty
	queueEnded
)

// errAbandoned is what becomes of items after a Close that gave up.
var errAbandoned = errors.New("the writer was closed before there was time for it")

// next takes the first item.
func (w *Writer) next() (item, queueState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case len(w.pending) > 0:
		it := w.pending[0]
		w.pending[0] = item{}
		w.pending = w.pending[1:]
		return it, queueItem
	case w.closed:
		return item{}, queueEnded
	}
	w.pending = nil // gives back what a storm took
	return item{}, queueEmpty
}

// finish counts what became of an item, and tells who waits for it.
func (w *Writer) finish(it *item, path string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
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
	w.err = cmp.Or(w.err, err)
	if it.reply != nil {
		it.reply <- outcome{path, err}
	}
	w.done++
	w.waiting = slices.DeleteFunc(w.waiting, func(x waiter) bool {
		if w.done < x.target {
			return false
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

// write writes one incident. Another process may take the very name in the
// folder that both share; then it gets another number.
func (w *Writer) write(it *item) (path string, err error) {
	if w.isAbandoned() {
		return "", errAbandoned
	}
	in := &Incident{Schema: Schema, Finding: FromFinding(it.finding), Repeats: it.repeats, Process: thisProcess(), Surroundings: w.around(it.finding)}
	for range 3 {
		in.Number = lastNumber.Add(1)
		text, err := in.fit(min(w.cfg.MaxBytes, MaxFile))
		if err != nil {
			return "", err
		}
		path, removed, err := w.folder.Add(fileName(in), text)
		w.removed.Add(uint64(removed))
		if !errors.Is(err, fs.ErrExist) {
			return path, err
		}
	}
	return "", fs.ErrExist
}

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

// around asks what surrounds a finding. Who reports a finding may hold what the
// answer needs, so the question is asked beside and not waited for long.
func (w *Writer) around(f core.Finding) Surroundings {
	if w.cfg.Around == nil {
		return Surroundings{}
	}
	if !w.asking.CompareAndSwap(false, true) {
		return Surroundings{Incomplete: "the runtime has not answered for the incident before"}
	}
	answer := make(chan Surroundings, 1)
	go func() {
		s := w.cfg.Around(f)
		w.asking.Store(false)
		answer <- s
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case s := <-answer:
		return s
	case <-timer.C:
		return Surroundings{Incomplete: "the runtime did not answer in " + patience.String()}
	}
}
