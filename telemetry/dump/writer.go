package dump

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/telemetry/history"
	"github.com/fencepost-gpu/fencepost/telemetry/internal/rotated"
)

// Writer writes dumps into a folder. It is safe for concurrent use.
//
// One goroutine takes the history and writes it; a caller that triggers a dump
// never waits for it.
type Writer struct {
	cfg    Config
	folder rotated.Folder
	worker rotated.Worker

	mu     sync.Mutex
	last   time.Time // when a dump was last let through that was not asked for
	err    error
	counts map[Count]uint64 // by trigger and outcome
}

// Outcome is what became of a dump.
type Outcome string

// The outcomes.
const (
	// Written: its files are in the folder.
	Written Outcome = "written"
	// Limited: it was left out, because there was one shortly before.
	Limited Outcome = "limited"
	// Failed: not all of its files could be written.
	Failed Outcome = "failed"
)

// Count is how many dumps of a trigger came to an outcome.
type Count struct {
	Trigger Trigger
	Outcome Outcome
	Count   uint64
}

// form is one of the files of a dump. The page that reads the snapshot does not
// unpack it; the others do.
type form struct {
	format history.Format
	suffix string
	packed bool
}

var forms = [...]form{
	{history.JSONLines, ".jsonl.gz", true},
	{history.Perfetto, ".trace.json.gz", true},
	{history.PyTorch, ".pickle", false},
}

// The pattern of our names. The folder removes nothing else.
var namePattern = regexp.MustCompile(`^\d{8}T\d{6}\.\d{9}Z-\d{6,20}-dump-[a-z-]{1,40}\.(jsonl\.gz|trace\.json\.gz|pickle)$`)

// IsFile reports whether a name is of the form that [Writer] gives to the files
// of one format.
func IsFile(name string, f history.Format) bool {
	i := slices.IndexFunc(forms[:], func(x form) bool { return x.format == f })
	return i >= 0 && strings.HasSuffix(name, forms[i].suffix) && namePattern.MatchString(name)
}

// lastNumber numbers the dumps of the process, so that runtimes may share a
// folder.
var lastNumber atomic.Uint64

// maxQueued is how many dumps that were not asked for may wait.
const maxQueued = 8

// NewWriter makes the folder if need be and tries to write to it. The writer must be
// closed. The error is a [core.InvalidRequestError] for
// a bad configuration, and that of the file system otherwise.
func NewWriter(cfg Config) (*Writer, error) {
	const op = "dump.NewWriter"
	cfg.Every = cmp.Or(cfg.Every, DefaultEvery)
	if cfg.now == nil {
		cfg.now = time.Now
	}
	w := &Writer{cfg: cfg, counts: map[Count]uint64{},
		folder: rotated.Folder{Dir: cfg.Folder, Ours: namePattern, Max: rotated.Bounds{Files: cfg.MaxFiles, Bytes: cfg.MaxBytes}}}
	switch {
	case cfg.Source == nil:
		return nil, &core.InvalidRequestError{Op: op, Field: "Source", Reason: "nil: say where the history is"}
	case cfg.Every < 0:
		return nil, &core.InvalidRequestError{Op: op, Field: "Every", Reason: fmt.Sprintf("%v: say a time, or 0 for the default of %v", cfg.Every, DefaultEvery)}
	}
	if err := w.folder.Open(op, rotated.Bounds{Files: len(forms), Bytes: 64 << 10}, rotated.Bounds{Files: DefaultMaxFiles, Bytes: DefaultMaxBytes}); err != nil {
		return nil, err
	}
	return w, nil
}

// Trigger asks for a dump, which is made soon, unless there was one within
// Config.Every. It does not block.
func (w *Writer) Trigger(t Trigger) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.cfg.now()
	early := t != StickyError && !w.last.IsZero() && now.Sub(w.last) < w.cfg.Every
	if early || !w.worker.Do(func() { _, _ = w.write(t) }, maxQueued) {
		w.counts[Count{Trigger: t, Outcome: Limited}]++
		return
	}
	w.last = now
}

// Now makes a dump, however long ago the last one was, and waits until it is
// written or ctx ends. It returns the paths of the files.
func (w *Writer) Now(ctx context.Context, t Trigger) ([]string, error) {
	type result struct {
		paths []string
		err   error
	}
	reply := make(chan result, 1)
	queued := w.worker.Do(func() {
		if ctx.Err() == nil { // the caller still waits
			paths, err := w.write(t)
			reply <- result{paths, err}
		}
	}, math.MaxInt)
	if !queued {
		return nil, fmt.Errorf("dumping the history: %w", core.ErrClosed)
	}
	select {
	case r := <-reply:
		return r.paths, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("the history is not dumped yet: %w", ctx.Err())
	}
}

// Close makes the dumps that wait, until ctx ends. It returns the first error
// of writing. It may be called again.
func (w *Writer) Close(ctx context.Context) error {
	if err := w.worker.Close(ctx); err != nil {
		return fmt.Errorf("a dump of the history is not written: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// write writes one dump, as far as it can, counts it, and returns its files.
func (w *Writer) write(t Trigger) (paths []string, err error) {
	source, err := w.cfg.Source()
	if err == nil {
		paths, err = w.writeForms(source, t)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	outcome := Written
	if err != nil {
		outcome = Failed
		w.err = cmp.Or(w.err, fmt.Errorf("dumping the history: %w", err))
	}
	w.counts[Count{Trigger: t, Outcome: outcome}]++
	return paths, err
}

// writeForms writes each file that fits beside the others of the dump, which must not
// make room for it.
func (w *Writer) writeForms(source history.Source, t Trigger) (paths []string, err error) {
	name := fmt.Sprintf("%s-%06d-dump-%s", w.cfg.now().UTC().Format(rotated.NameTime), lastNumber.Add(1), strings.ReplaceAll(string(t), "_", "-"))
	room := w.folder.Max.Bytes
	for _, f := range forms {
		text, failed := f.encode(source)
		if n := int64(len(text)); failed != nil {
			failed = fmt.Errorf("%s: %w", f.format, failed)
		} else if n > room {
			failed = fmt.Errorf("%s: %d bytes are more than the folder may hold beside the dump's other files: raise MaxBytes", f.format, n)
		} else {
			var path string
			if path, _, failed = w.folder.Add(name+f.suffix, text); path != "" {
				paths = append(paths, path)
				room -= n
			}
		}
		err = errors.Join(err, failed)
	}
	return paths, err
}

func (f form) encode(source history.Source) ([]byte, error) {
	var text bytes.Buffer
	if !f.packed {
		err := source.Write(&text, f.format)
		return text.Bytes(), err
	}
	packer := gzip.NewWriter(&text)
	err := errors.Join(source.Write(packer, f.format), packer.Close())
	return text.Bytes(), err
}

// Stats counts the dumps so far, by every trigger and outcome.
func (w *Writer) Stats() []Count {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []Count
	for _, t := range []Trigger{Finding, Refusals, StickyError, Request} {
		for _, o := range []Outcome{Written, Limited, Failed} {
			all = append(all, Count{t, o, w.counts[Count{Trigger: t, Outcome: o}]})
		}
	}
	return all
}

// Failures is how many dumps could not be written.
func (w *Writer) Failures() (n uint64) {
	for _, c := range w.Stats() {
		if c.Outcome == Failed {
			n += c.Count
		}
	}
	return n
}
