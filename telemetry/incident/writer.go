package incident

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
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
	// writing writes files, asking calls Config.Around; awaiting ends when nobody
	// waits for its answers any longer.
	writing, asking *rotated.Worker
	awaiting        context.Context
	stopAwaiting    context.CancelFunc

	mu      sync.Mutex
	limiter limiter
	// open are the items that are not done. Of them queued are not written yet, and
	// toComplete are to be written again, with what surrounds them.
	open               map[*item]bool
	queued, toComplete int
	closed             bool
	paths              []string
	err                error
	// abandoned is set when a Close gave up: what waits is dropped.
	abandoned atomic.Bool

	reported, written, omitted, dropped, failed, removed, incomplete atomic.Uint64
}

// item is a finding on its way to the disk.
type item struct {
	finding core.Finding
	repeats Repeats
	// number is the incident's.
	number uint64
	// reply, if not nil, is told what became of it.
	reply chan<- outcome
	// done is closed when the file is as it will be.
	done chan struct{}

	// incident is the finding as it is written, name that of its file, and answer
	// what is still to come of its surroundings, nil if nothing is.
	incident *Incident
	name     string
	answer   *answer
}

type outcome struct {
	path string
	err  error
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
	const op = "incident.NewWriter"
	cfg = cfg.withDefaults()
	if cfg.Queue < 0 || cfg.Full < 0 || cfg.Every < 0 {
		return nil, &core.InvalidRequestError{Op: op, Field: "Queue, Full, Every", Reason: "negative"}
	}
	w := &Writer{
		cfg:     cfg,
		folder:  rotated.Folder{Dir: cfg.Folder, FS: cfg.fs, Ours: namePattern, Max: rotated.Bounds{Files: cfg.MaxFiles, Bytes: cfg.MaxBytes}},
		limiter: limiter{most: cfg.Full, every: cfg.Every, sorts: map[sort]*storm{}},
		open:    map[*item]bool{},
	}
	if err := w.folder.Open(op, rotated.Bounds{Bytes: 64 << 10}, rotated.Bounds{Files: DefaultMaxFiles, Bytes: DefaultMaxBytes}); err != nil {
		return nil, err
	}
	w.awaiting, w.stopAwaiting = context.WithCancel(context.Background())
	w.writing, w.asking = rotated.NewWorker(), rotated.NewWorker()
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
	w.date(&f)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reported.Add(1)
	if w.closed {
		w.dropped.Add(1)
		return ""
	}
	now, storm := w.cfg.now(), w.limiter.stormOf(&f)
	full := w.limiter.full(storm, now)
	if !full && w.queued >= w.cfg.Queue {
		w.dropped.Add(1)
		return ""
	}
	if storm.omitted > 0 { // the newest of them is never written now
		w.omitted.Add(1)
	}
	if full {
		storm.omit(&f, now)
	} else {
		storm.path = w.queue(&item{finding: f, repeats: storm.admit(now)})
	}
	return storm.path
}

// Urgent writes f before everything that waits, whatever came before it: the finding
// that ends the process. It returns the path as [Writer.Take] does, at once, and what
// waits for the file and returns its path.
func (w *Writer) Urgent(f core.Finding) (path string, wait func(context.Context) (string, error)) {
	w.date(&f)
	reply := make(chan outcome, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reported.Add(1)
	if w.closed {
		w.dropped.Add(1)
		reply <- outcome{err: fmt.Errorf("writing an incident: %w", core.ErrClosed)}
	} else {
		path = w.queue(&item{finding: f, reply: reply})
	}
	return path, func(ctx context.Context) (string, error) {
		select {
		case o := <-reply:
			return o.path, o.err
		case <-ctx.Done():
			return "", fmt.Errorf("the incident is not written yet: %w", ctx.Err())
		}
	}
}

// date gives a finding without a time that of now: names of files sort by time.
func (w *Writer) date(f *core.Finding) {
	if instant(f.Time).IsZero() {
		f.Time = w.cfg.now()
	}
}

// queue takes an item, one that is urgent before all others, and returns the path
// of its file; mu must be held.
func (w *Writer) queue(it *item) (path string) {
	it.number, it.done = lastNumber.Add(1), make(chan struct{})
	w.open[it] = true
	w.queued++
	job := func() { w.handle(it) }
	if it.reply != nil {
		w.writing.DoFirst(job)
	} else {
		w.writing.Do(job, math.MaxInt)
	}
	return w.folder.Path(fileName(&it.finding, it.number))
}

// finish notes that an item is done.
func (w *Writer) finish(it *item, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = cmp.Or(w.err, err)
	delete(w.open, it)
	close(it.done)
}

// Flush waits until everything reported before the call is written with all that
// surrounds it, failed or dropped, or ctx ends. It returns the first error of writing since the last
// Flush.
func (w *Writer) Flush(ctx context.Context) error {
	w.mu.Lock()
	open := slices.Collect(maps.Keys(w.open))
	w.mu.Unlock()
	for _, it := range open {
		if err := deadline.Await(ctx, it.done); err != nil {
			return fmt.Errorf("incidents are not written yet: %w", err)
		}
	}
	w.mu.Lock()
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
	w.shut()
	err := w.Flush(ctx)
	w.mu.Lock()
	left := len(w.open)
	if left > 0 {
		w.abandoned.Store(true)
	}
	w.mu.Unlock()
	w.stopAwaiting()
	_ = w.asking.Close(w.awaiting) // without waiting: Around may not return
	if left > 0 {
		_ = w.writing.Close(ctx)
		return fmt.Errorf("%d incidents are not written: %w", left, ctx.Err())
	}
	return errors.Join(err, w.writing.Close(context.WithoutCancel(ctx))) // it has nothing to do
}

// shut takes no more findings, and queues what was left out as repeats. When all
// that is written the time begins in which answers are still waited for.
func (w *Writer) shut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.closed = true
	w.limiter.rest(func(f core.Finding, r Repeats) { w.queue(&item{finding: f, repeats: r}) })
	w.writing.Do(func() { time.AfterFunc(lastAnswers, w.stopAwaiting) }, math.MaxInt)
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
