package dump

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/telemetry/internal/rotated"
)

// Writer writes dumps into a folder. It is safe for concurrent use.
//
// One goroutine takes the history and writes it; who triggers a dump never
// waits for it. That goroutine starts with the writer and ends with Close.
type Writer struct {
	cfg    Config
	folder rotated.Folder
	worker rotated.Worker

	mu sync.Mutex
	// last is when a dump was last let through that nobody asked for.
	last   time.Time
	err    error
	counts map[key]uint64
}

// maxQueued is how many dumps that nobody asked for may wait.
const maxQueued = 8

// NewWriter makes the folder if need be, tries to write to it, and starts the
// writer, which must be closed. The error is a [core.InvalidRequestError] for
// a bad configuration, and that of the file system otherwise.
func NewWriter(cfg Config) (*Writer, error) {
	const op = "dump.NewWriter"
	cfg.Every = cmp.Or(cfg.Every, DefaultEvery)
	if cfg.now == nil {
		cfg.now = time.Now
	}
	w := &Writer{cfg: cfg, counts: map[key]uint64{},
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
	if early || !w.worker.Do(func() { _, _ = w.make(t) }, maxQueued) {
		w.counts[key{t, Limited}]++
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
		if ctx.Err() == nil { // somebody still waits
			paths, err := w.make(t)
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

// make makes a dump and counts it.
func (w *Writer) make(t Trigger) ([]string, error) {
	paths, err := w.write(t)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.counts[key{t, Failed}]++
		w.err = cmp.Or(w.err, fmt.Errorf("dumping the history: %w", err))
		return paths, err
	}
	w.counts[key{t, Written}]++
	return paths, nil
}
