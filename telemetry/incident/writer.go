package incident

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/telemetry/internal/rotated"
)

// Writer writes each finding that is reported to it as a file. It is safe for
// concurrent use.
//
// # How it works
//
// Report decides under a short lock whether the finding is one too many of its
// sort, and queues it; it never waits for the disk. One goroutine asks what
// surrounds each finding, and writes it under another name, puts that on the
// disk and renames it, after it has removed as many of the oldest files as are
// too many. Every finding is in exactly one of the counters of [Stats] once
// the writer is closed.
type Writer struct {
	cfg    Config
	folder rotated.Folder

	mu      sync.Mutex
	limiter limiter
	pending []item
	// accepted and done count the items queued and handled.
	accepted, done uint64
	waiting        []waiter
	closed         bool
	// abandoned is set when a Close gave up: what is pending is dropped.
	abandoned bool
	paths     []string
	err       error

	wake  chan struct{}
	ended chan struct{}
	// asking is set while Around has not answered.
	asking atomic.Bool

	reported, written, omitted, dropped, failed, removed atomic.Uint64
}

// item is a finding on its way to the disk.
type item struct {
	finding core.Finding
	repeats Repeats
	// reply, if not nil, is told what became of it.
	reply chan<- outcome
}

type outcome struct {
	path string
	err  error
}

// waiter is somebody who waits until so many items are handled.
type waiter struct {
	target uint64
	ready  chan struct{}
}

// Stats is what became of the findings reported to a [Writer].
type Stats struct {
	Reported uint64
	// Written are in a file of their own; Omitted were left out as repeats,
	// and count in a later file; Dropped found the queue full or the writer
	// closed; Failed could not be written.
	Written, Omitted, Dropped, Failed uint64
	// Removed counts files that were removed for newer ones.
	Removed uint64
}

var _ core.FindingSink = (*Writer)(nil)

// NewWriter makes the folder if need be, tries to write to it, and starts the
// writer, which must be closed. The error is a [core.InvalidRequestError] for
// a bad configuration, and that of the file system otherwise.
func NewWriter(cfg Config) (*Writer, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	w := &Writer{
		cfg:     cfg,
		folder:  rotated.Folder{Dir: cfg.Folder, FS: cfg.fs, Ours: namePattern, MaxFiles: cfg.MaxFiles, MaxBytes: cfg.MaxBytes},
		limiter: limiter{full: cfg.Full, every: cfg.Every, sorts: map[sort]*storm{}},
		wake:    make(chan struct{}, 1),
		ended:   make(chan struct{}),
	}
	if err := w.folder.Open(); err != nil {
		return nil, fmt.Errorf("the folder for incidents, %s, cannot be written to: %w", cfg.Folder, err)
	}
	go w.run()
	return w, nil
}

// Report queues f to be written, unless it is one too many of its sort or the
// queue is full; both are counted. It does not block.
func (w *Writer) Report(f core.Finding) {
	w.stamp(&f)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reported.Add(1)
	if w.closed {
		w.dropped.Add(1)
		return
	}
	repeats, is, gone := w.limiter.pass(&f, w.cfg.now(), len(w.pending) < w.cfg.Queue)
	w.omitted.Add(gone)
	switch is {
	case noRoom:
		w.dropped.Add(1)
	case passes:
		w.queue(item{finding: f, repeats: repeats})
	}
}

// Deliver writes f before everything that waits, whatever came before it, and
// waits for that until ctx ends. It returns the file's path. It is for the
// finding that ends the process.
func (w *Writer) Deliver(ctx context.Context, f core.Finding) (string, error) {
	w.stamp(&f)
	reply := make(chan outcome, 1)
	w.mu.Lock()
	w.reported.Add(1)
	if w.closed {
		w.dropped.Add(1)
		w.mu.Unlock()
		return "", fmt.Errorf("writing an incident: %w", core.ErrClosed)
	}
	w.queueFirst(item{finding: f, reply: reply})
	w.mu.Unlock()
	select {
	case o := <-reply:
		return o.path, o.err
	case <-ctx.Done():
		return "", fmt.Errorf("the incident is not written yet: %w", ctx.Err())
	}
}

// stamp dates a finding that nobody has: names of files sort by time.
func (w *Writer) stamp(f *core.Finding) {
	if instant(f.Time).IsZero() {
		f.Time = w.cfg.now()
	}
}

// queue appends an item; mu must be held.
func (w *Writer) queue(it item) {
	w.pending = append(w.pending, it)
	w.accepted++
	w.nudge()
}

// queueFirst puts an item before all others; mu must be held. Who waits for
// those waits for one more.
func (w *Writer) queueFirst(it item) {
	w.pending = slices.Insert(w.pending, 0, it)
	w.accepted++
	for i := range w.waiting {
		w.waiting[i].target++
	}
	w.nudge()
}

func (w *Writer) nudge() {
	select {
	case w.wake <- struct{}{}:
	default: // awake already
	}
}

// Flush waits until everything reported before the call is written, failed or
// dropped, or ctx ends. It returns the first error of writing since the last
// Flush.
func (w *Writer) Flush(ctx context.Context) error {
	w.mu.Lock()
	if w.done < w.accepted {
		ready := make(chan struct{})
		w.waiting = append(w.waiting, waiter{w.accepted, ready})
		w.mu.Unlock()
		select {
		case <-ready:
		case <-ctx.Done():
			return fmt.Errorf("incidents are not written yet: %w", ctx.Err())
		}
		w.mu.Lock()
	}
	defer w.mu.Unlock()
	err := w.err
	w.err = nil
	return err
}

// Close writes what waits, and the newest of the findings that were left out
// as repeats, until ctx ends; what is not written by then is dropped and
// counted. Findings reported afterwards are dropped. It returns the first
// error of writing since the last Flush. It may be called again.
func (w *Writer) Close(ctx context.Context) error {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		w.limiter.rest(func(f core.Finding, r Repeats) { w.queue(item{finding: f, repeats: r}) })
		w.nudge()
	}
	w.mu.Unlock()
	select {
	case <-w.ended:
	case <-ctx.Done():
		w.mu.Lock()
		w.abandoned = true
		left := w.accepted - w.done
		w.mu.Unlock()
		return fmt.Errorf("%d incidents are not written: %w", left, ctx.Err())
	}
	return w.Flush(ctx)
}

// Stats is what became of the findings so far.
func (w *Writer) Stats() Stats {
	return Stats{Reported: w.reported.Load(), Written: w.written.Load(), Omitted: w.omitted.Load(),
		Dropped: w.dropped.Load(), Failed: w.failed.Load(), Removed: w.removed.Load()}
}

// Folder is where the files go.
func (w *Writer) Folder() string { return w.cfg.Folder }

// Files are the paths of the newest files that this writer wrote, oldest
// first, at most as many as the folder may hold. The slice is the caller's.
func (w *Writer) Files() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.paths...)
}

// patience is how long Around may take.
const patience = 250 * time.Millisecond
