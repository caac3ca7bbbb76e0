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
// sort, and queues it; it never waits for the disk. One goroutine writes it
// under another name, puts that on the disk and renames it, after it has removed
// as many of the oldest files as are too many. A second one asks what surrounds
// each finding; what it does not know in a moment is added to the file in the
// same way when it comes. Every finding is in exactly one of the counters of
// [Stats] once the writer is closed.
type Writer struct {
	cfg    Config
	folder rotated.Folder

	mu      sync.Mutex
	limiter limiter
	pending []item
	// accepted counts the items queued; open are those that are not handled yet,
	// and lates those of them whose files wait for the rest.
	accepted uint64
	open     map[uint64]bool
	lates    []*late
	waiting  []waiter
	closed   bool
	// closing ends the wait for what is late; nil while there is more to do.
	closing *time.Timer
	// abandoned is set when a Close gave up: what is pending is dropped.
	abandoned bool
	paths     []string
	err       error

	asker asker
	wake  chan struct{}
	ended chan struct{}

	reported, written, omitted, dropped, failed, removed, incomplete atomic.Uint64
}

// item is a finding on its way to the disk.
type item struct {
	finding core.Finding
	repeats Repeats
	// number is the incident's, and seq orders items by when they were queued.
	number, seq uint64
	// reply, if not nil, is told what became of it.
	reply chan<- outcome
}

type outcome struct {
	path string
	err  error
}

// waiter is somebody who waits until all items up to one are handled.
type waiter struct {
	last  uint64
	ready chan struct{}
}

// Stats is what became of the findings reported to a [Writer].
type Stats struct {
	Reported uint64
	// Written are in a file of their own; Omitted were left out as repeats,
	// and count in a later file; Dropped found the queue full or the writer
	// closed; Failed could not be written.
	Written, Omitted, Dropped, Failed uint64
	// Incomplete counts those of Written whose surroundings were never told, or
	// could not be added to the file.
	Incomplete uint64
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
		open:    map[uint64]bool{},
		wake:    make(chan struct{}, 1),
		ended:   make(chan struct{}),
	}
	ctx, stop := context.WithCancel(context.Background())
	w.asker = asker{around: cfg.Around, told: w.nudge, ctx: ctx, stop: stop}
	if err := w.folder.Open(); err != nil {
		w.asker.stop()
		return nil, fmt.Errorf("the folder for incidents, %s, cannot be written to: %w", cfg.Folder, err)
	}
	go w.run()
	return w, nil
}

// Report queues f to be written, unless it is one too many of its sort or the
// queue is full; both are counted. It does not block.
func (w *Writer) Report(f core.Finding) { w.Take(f) }

// Take is Report, and returns the path of the file in which f will be: of a
// repeat that is left out, that of the last file of its sort; of one that is
// dropped none. It does not block. A file may fail to be written, and one whose
// very name another process takes gets another.
func (w *Writer) Take(f core.Finding) (path string) {
	w.stamp(&f)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reported.Add(1)
	if w.closed {
		w.dropped.Add(1)
		return ""
	}
	storm, repeats, is, gone := w.limiter.pass(&f, w.cfg.now(), len(w.pending) < w.cfg.Queue)
	w.omitted.Add(gone)
	switch is {
	case noRoom:
		w.dropped.Add(1)
		return ""
	case passes:
		storm.path = w.queue(item{finding: f, repeats: repeats})
	}
	return storm.path
}

// Deliver writes f before everything that waits, whatever came before it, and
// waits for that until ctx ends. It returns the file's path. It is for the
// finding that ends the process.
func (w *Writer) Deliver(ctx context.Context, f core.Finding) (string, error) {
	_, wait := w.Urgent(f)
	return wait(ctx)
}

// Urgent is Deliver in two steps: it returns the path as [Writer.Take] does, at
// once, and what waits for the file.
func (w *Writer) Urgent(f core.Finding) (path string, wait func(context.Context) (string, error)) {
	w.stamp(&f)
	reply := make(chan outcome, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reported.Add(1)
	if w.closed {
		w.dropped.Add(1)
		return "", func(context.Context) (string, error) {
			return "", fmt.Errorf("writing an incident: %w", core.ErrClosed)
		}
	}
	path = w.queue(item{finding: f, reply: reply})
	return path, func(ctx context.Context) (string, error) {
		select {
		case o := <-reply:
			return o.path, o.err
		case <-ctx.Done():
			return "", fmt.Errorf("the incident is not written yet: %w", ctx.Err())
		}
	}
}

// stamp dates a finding that nobody has: names of files sort by time.
func (w *Writer) stamp(f *core.Finding) {
	if instant(f.Time).IsZero() {
		f.Time = w.cfg.now()
	}
}

// queue takes an item, one that is urgent before all others, and returns the path
// of its file; mu must be held.
func (w *Writer) queue(it item) (path string) {
	w.accepted++
	it.seq, it.number = w.accepted, lastNumber.Add(1)
	w.open[it.seq] = true
	if it.reply != nil {
		w.pending = slices.Insert(w.pending, 0, it)
	} else {
		w.pending = append(w.pending, it)
	}
	w.nudge()
	return w.folder.Path(fileName(&it.finding, it.number))
}

func (w *Writer) nudge() {
	select {
	case w.wake <- struct{}{}:
	default: // awake already
	}
}

// Flush waits until everything reported before the call is written with all that
// surrounds it, failed or dropped, or ctx ends. It returns the first error of writing since the last
// Flush.
func (w *Writer) Flush(ctx context.Context) error {
	w.mu.Lock()
	if len(w.open) > 0 {
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
// counted. For what surrounds a finding it waits two seconds at most; a file without
// says so. Findings reported afterwards are dropped. It returns the first
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
		left := len(w.open)
		w.mu.Unlock()
		w.asker.stop()
		w.nudge()
		return fmt.Errorf("%d incidents are not written: %w", left, ctx.Err())
	}
	return w.Flush(ctx)
}

// Stats is what became of the findings so far.
func (w *Writer) Stats() Stats {
	return Stats{Reported: w.reported.Load(), Written: w.written.Load(), Omitted: w.omitted.Load(),
		Dropped: w.dropped.Load(), Failed: w.failed.Load(), Incomplete: w.incomplete.Load(), Removed: w.removed.Load()}
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
