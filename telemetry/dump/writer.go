package dump

import (
	"context"
	"fmt"
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

	mu sync.Mutex
	// last is when a dump was last let through that nobody asked for.
	last   time.Time
	closed bool
	err    error
	counts map[key]uint64

	queue chan item
	stop  chan struct{}
	ended chan struct{}
}

// item is a dump to be made. reply, if not nil, is told what became of it.
type item struct {
	trigger Trigger
	reply   chan<- result
}

type result struct {
	paths []string
	err   error
}

// queued is how many dumps may wait: one of each trigger that nobody asked for,
// and then some that were.
const queued = 8

// NewWriter makes the folder if need be, tries to write to it, and starts the
// writer, which must be closed. The error is a [core.InvalidRequestError] for
// a bad configuration, and that of the file system otherwise.
func NewWriter(cfg Config) (*Writer, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	w := &Writer{cfg: cfg, counts: map[key]uint64{},
		folder: rotated.Folder{Dir: cfg.Folder, FS: cfg.fs, Ours: namePattern, MaxFiles: cfg.MaxFiles, MaxBytes: cfg.MaxBytes},
		queue:  make(chan item, queued), stop: make(chan struct{}), ended: make(chan struct{})}
	if err := w.folder.Open(); err != nil {
		return nil, fmt.Errorf("the folder for dumps, %s, cannot be written to: %w", cfg.Folder, err)
	}
	go w.run()
	return w, nil
}

// Trigger asks for a dump, which is made soon, unless there was one within
// Config.Every. It does not block.
func (w *Writer) Trigger(t Trigger) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.cfg.now()
	if w.closed || t != StickyError && !w.last.IsZero() && now.Sub(w.last) < w.cfg.Every {
		w.counts[key{t, Limited}]++
		return
	}
	select {
	case w.queue <- item{trigger: t}:
		w.last = now
	default:
		w.counts[key{t, Limited}]++
	}
}

// Now makes a dump, however long ago the last one was, and waits until it is
// written or ctx ends. It returns the paths of the files.
func (w *Writer) Now(ctx context.Context, t Trigger) ([]string, error) {
	reply := make(chan result, 1)
	select {
	case <-w.stop: // also if ctx has ended, or there is room in the queue
		return nil, fmt.Errorf("dumping the history: %w", core.ErrClosed)
	default:
	}
	select {
	case w.queue <- item{t, reply}:
	case <-w.stop:
		return nil, fmt.Errorf("dumping the history: %w", core.ErrClosed)
	case <-ctx.Done():
		return nil, fmt.Errorf("dumping the history: others are being written: %w", ctx.Err())
	}
	select {
	case r := <-reply:
		return r.paths, r.err
	case <-w.ended:
		select {
		case r := <-reply:
			return r.paths, r.err
		default:
			return nil, fmt.Errorf("dumping the history: %w", core.ErrClosed)
		}
	case <-ctx.Done():
		return nil, fmt.Errorf("the history is not dumped yet: %w", ctx.Err())
	}
}

// Close makes the dumps that wait, until ctx ends. It returns the first error
// of writing. It may be called again.
func (w *Writer) Close(ctx context.Context) error {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.stop)
	}
	w.mu.Unlock()
	select {
	case <-w.ended:
	case <-ctx.Done():
		return fmt.Errorf("a dump of the history is not written: %w", ctx.Err())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// run makes dumps until the writer is closed and none waits.
func (w *Writer) run() {
	defer close(w.ended)
	for {
		select {
		case it := <-w.queue:
			w.make(it)
			continue
		case <-w.stop:
		}
		select {
		case it := <-w.queue:
			w.make(it)
		default:
			return
		}
	}
}

func (w *Writer) make(it item) {
	paths, err := w.write(it.trigger)
	w.mu.Lock()
	if err != nil {
		w.counts[key{it.trigger, Failed}]++
		if w.err == nil {
			w.err = fmt.Errorf("dumping the history: %w", err)
		}
	} else {
		w.counts[key{it.trigger, Written}]++
	}
	w.mu.Unlock()
	if it.reply != nil {
		it.reply <- result{paths, err}
	}
}
