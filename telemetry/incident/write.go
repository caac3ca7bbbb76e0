package incident

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync/atomic"
)

// lastNumber numbers the incidents of the process, so that runtimes may share a
// folder.
var lastNumber atomic.Uint64

// errAbandoned is what becomes of items after a Close that gave up.
var errAbandoned = errors.New("the writer was closed before there was time for it")

// handle writes an item. One whose surroundings are still to come is done when its
// file has been written again.
func (w *Writer) handle(it *item) {
	w.mu.Lock()
	w.queued--
	w.mu.Unlock()
	path, err := w.write(it)
	toComplete := path != "" && it.answer != nil
	w.mu.Lock()
	switch {
	case errors.Is(err, errAbandoned):
		w.dropped.Add(1)
	case path == "":
		w.failed.Add(1)
	default:
		w.written.Add(1)
		w.paths = append(w.paths, path)
		w.paths = slices.Delete(w.paths, 0, max(0, len(w.paths)-w.folder.Max.Files))
	}
	if toComplete {
		w.toComplete++
		w.err = cmp.Or(w.err, err)
	}
	w.mu.Unlock()
	if it.reply != nil {
		it.reply <- outcome{path, err}
	}
	if !toComplete {
		w.finish(it, err)
		return
	}
	go w.await(it)
}

// write writes one incident, with what is known of its surroundings in a moment.
// Another process may take the very name in the folder that both share; then it
// gets another number.
func (w *Writer) write(it *item) (path string, err error) {
	if w.abandoned.Load() {
		return "", errAbandoned
	}
	in := &Incident{Schema: Schema, Number: it.number, Finding: FromFinding(it.finding), Repeats: it.repeats, Process: thisProcess()}
	it.incident, it.answer = in, w.surround(in, it)
	for range 3 {
		text, err := in.fit(w.limit())
		if err != nil {
			return "", err
		}
		it.name = fileName(&it.finding, in.Number)
		path, removed, err := w.folder.Add(it.name, text)
		w.removed.Add(uint64(removed))
		if !errors.Is(err, fs.ErrExist) {
			return path, err
		}
		in.Number = lastNumber.Add(1)
	}
	return "", fs.ErrExist
}

// surround asks what surrounds a finding, and waits for it where nobody waits
// already: a runtime that is stuck delays one file and not each. It returns the
// answer if that is not all.
func (w *Writer) surround(in *Incident, it *item) *answer {
	w.mu.Lock()
	others := w.toComplete
	w.mu.Unlock()
	if others >= w.cfg.Queue {
		in.Incomplete = notQueried
		w.incomplete.Add(1)
		return nil
	}
	if w.awaiting.Err() != nil {
		in.Surroundings = partly(Surroundings{}, neverCame)
		w.incomplete.Add(1)
		return nil
	}
	a := w.ask(it)
	switch {
	case it.reply != nil:
		a.wait(patience)
	case others == 0:
		a.wait(aMoment)
	}
	s, whole := a.now()
	if whole {
		in.Surroundings = s
		return nil
	}
	in.Surroundings = partly(s, stillToCome)
	return a
}

// rewrite puts a completed incident in the place of what was written at first.
func (w *Writer) rewrite(it *item) error {
	if w.abandoned.Load() {
		return nil // it says that it is not whole
	}
	text, err := it.incident.fit(w.limit())
	if err != nil {
		return err
	}
	removed, err := w.folder.Replace(it.name, text)
	w.removed.Add(uint64(removed))
	if errors.Is(err, fs.ErrNotExist) { // it was the oldest
		return nil
	}
	return err
}

func (w *Writer) limit() int64 { return min(w.folder.Max.Bytes, MaxFile) }

// fit encodes the incident, without its oldest history if it is too long.
func (in *Incident) fit(limit int64) ([]byte, error) {
	for {
		text, err := in.Encode()
		switch {
		case err != nil || int64(len(text)) <= limit:
			return text, err
		case len(in.History) == 0:
			return nil, fmt.Errorf("an incident of %d bytes: larger than an incident or the folder may be", len(text))
		}
		in.History = in.History[(len(in.History)+1)/2:]
	}
}
