package incident

import (
	"cmp"
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
	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
	"github.com/fencepost-gpu/fencepost/telemetry/internal/rotated"
)

// How long a file waits for what surrounds its finding, from the report on: that of a
// finding that ends the process not so long, and one that waited for the disk at
// least a moment more.
const (
	patience       = 2 * time.Second
	urgentPatience = time.Second
	aMoment        = 50 * time.Millisecond
)

// Writer writes each finding that is reported to it as a file. It is safe for
// concurrent use.
//
// Report decides under a short lock whether the finding is one too many of its
// sort, and queues it; it never waits for the disk. One goroutine asks what surrounds
// each finding, for two seconds at most, and writes the file, in one step. Every
// finding is in exactly one of the counters of [Stats] once the writer is closed.
type Writer struct {
	cfg    Config
	folder rotated.Folder
	worker rotated.Worker
	// asking ends when no file waits for its surroundings any longer; turn is full
	// while Config.Around runs.
	asking     context.Context
	stopAsking context.CancelFunc
	turn       chan struct{}

	mu      sync.Mutex
	limiter limiter
	stats   Stats
	// queued are not taken up yet; of them urgent go before all others, for which hurry
	// makes the file that waits for its surroundings wait no longer.
	queued, urgent int
	hurry          context.CancelFunc
	paths          []string
	err            error
	// closed takes no more findings; abandoned, when a Close gave up, drops those
	// that wait.
	closed, abandoned bool
}

// item is a finding on its way to the disk.
type item struct {
	finding core.Finding
	repeats Repeats
	number  uint64       // of the incident
	until   time.Time    // how long it waits for its surroundings
	reply   chan outcome // of a finding that ends the process; otherwise nil
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
	// Incomplete counts those of Written whose surroundings did not come in time.
	Incomplete uint64
	// Removed counts files that were removed for newer ones.
	Removed uint64
}

// The pattern of our names: the time, the number of the incident, the kind.
// The folder removes nothing else.
var (
	namePattern = regexp.MustCompile(`^\d{8}T\d{6}\.\d{9}Z-\d{6,20}-[a-z0-9-]{1,40}\.json$`)
	notInName   = regexp.MustCompile(`[^a-z0-9-]+`)
)

// lastNumber numbers the incidents of the process, so that runtimes may share a
// folder.
var lastNumber atomic.Uint64

// IsFile reports whether a name is of the form that [Writer] gives to files.
func IsFile(name string) bool { return namePattern.MatchString(name) }

// NewWriter makes the folder if need be, tries to write to it, and starts the
// writer, which must be closed. The error is a [core.InvalidRequestError] for
// a bad configuration, and that of the file system otherwise.
func NewWriter(cfg Config) (*Writer, error) {
	const op = "incident.NewWriter"
	cfg.Queue, cfg.Full, cfg.Every = cmp.Or(cfg.Queue, DefaultQueue), cmp.Or(cfg.Full, DefaultFull), cmp.Or(cfg.Every, DefaultEvery)
	if cfg.Queue < 0 || cfg.Full < 0 || cfg.Every < 0 {
		return nil, &core.InvalidRequestError{Op: op, Field: "Queue, Full, Every", Reason: "negative"}
	}
	if cfg.now == nil {
		cfg.now = time.Now
	}
	w := &Writer{
		cfg:     cfg,
		folder:  rotated.Folder{Dir: cfg.Folder, Ours: namePattern, Max: rotated.Bounds{Files: cfg.MaxFiles, Bytes: cfg.MaxBytes}, Disk: cfg.disk},
		turn:    make(chan struct{}, 1),
		limiter: limiter{most: cfg.Full, every: cfg.Every, sorts: map[string]*storm{}},
		hurry:   func() {},
	}
	if err := w.folder.Open(op, rotated.Bounds{Bytes: 64 << 10}, rotated.Bounds{Files: DefaultMaxFiles, Bytes: DefaultMaxBytes}); err != nil {
		return nil, err
	}
	w.asking, w.stopAsking = context.WithCancel(context.Background())
	return w, nil
}

// Report queues f to be written, unless it is one too many of its sort or the
// queue is full; both are counted. It does not block.
func (w *Writer) Report(f core.Finding) { w.Take(f) }

// Take is Report, and returns the path of the file in which f will be: of a
// repeat that is left out, that of the last file of its sort; of one that is
// dropped none. It does not block. A file may fail to be written.
func (w *Writer) Take(f core.Finding) (path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.admit(&f) {
		return ""
	}
	now, storm := w.cfg.now(), w.limiter.stormOf(&f)
	full := w.limiter.full(storm, now)
	if !full && w.queued >= w.cfg.Queue {
		w.stats.Dropped++
		return ""
	}
	if storm.repeats.Omitted > 0 { // the newest of them is never written now
		w.stats.Omitted++
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
	reply := make(chan outcome, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.admit(&f) {
		path = w.queue(&item{finding: f, reply: reply})
	} else {
		reply <- outcome{err: fmt.Errorf("writing an incident: %w", core.ErrClosed)}
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

// admit counts a finding, and reports whether it may be queued. One without a time
// gets that of now: names of files sort by time. mu must be held.
func (w *Writer) admit(f *core.Finding) bool {
	if instant(f.Time).IsZero() {
		f.Time = w.cfg.now()
	}
	w.stats.Reported++
	if w.closed {
		w.stats.Dropped++
	}
	return !w.closed
}

// queue takes an item, one that is urgent before all others, and returns the path
// of its file; mu must be held.
func (w *Writer) queue(it *item) (path string) {
	it.number = lastNumber.Add(1)
	w.queued++
	job := func() { w.handle(it) }
	if it.reply != nil {
		it.until = time.Now().Add(urgentPatience)
		w.urgent++
		w.worker.DoFirst(job)
		w.hurry()
	} else {
		it.until = time.Now().Add(patience)
		w.worker.Do(job, math.MaxInt)
	}
	return w.folder.Path(it.name())
}

// name is that of the item's file in the folder. Names sort by time.
func (it *item) name() string {
	kind := notInName.ReplaceAllString(strings.ToLower(string(it.finding.Kind)), "-")
	return fmt.Sprintf("%s-%06d-%s.json", instant(it.finding.Time).Format(rotated.NameTime), it.number, cmp.Or(kind[:min(len(kind), 40)], "unknown"))
}

// handle writes an item and counts it.
func (w *Writer) handle(it *item) {
	w.mu.Lock()
	w.queued--
	if it.reply != nil {
		w.urgent--
	}
	if w.abandoned {
		w.stats.Dropped++
		w.mu.Unlock()
		w.settle(it, "", errors.New("the writer was closed before there was time for it"))
		return
	}
	w.mu.Unlock()
	surroundings, partial := w.surround(it)
	in := &Incident{Schema: Schema, Number: it.number, Finding: FromFinding(it.finding), Repeats: it.repeats, Process: thisProcess(), Surroundings: surroundings}
	text, err := in.fit(min(w.folder.Max.Bytes, MaxFile))
	path, removed := "", 0
	if err == nil {
		path, removed, err = w.folder.Add(it.name(), text)
	}
	w.mu.Lock()
	w.stats.Removed += uint64(removed)
	w.err = cmp.Or(w.err, err)
	if path == "" {
		w.stats.Failed++
		if s := w.limiter.stormOf(&it.finding); s.path == w.folder.Path(it.name()) {
			s.path = "" // its repeats name no file either
		}
	} else {
		w.stats.Written++
		w.paths = append(w.paths, path)
		w.paths = slices.Delete(w.paths, 0, max(0, len(w.paths)-w.folder.Max.Files))
		if partial {
			w.stats.Incomplete++
		}
	}
	w.mu.Unlock()
	w.settle(it, path, err)
}

// settle tells what became of the item.
func (w *Writer) settle(it *item, path string, err error) {
	if it.reply != nil {
		defer func() { it.reply <- outcome{path, err} }()
	}
	if path == "" && w.cfg.Failed != nil {
		usercode.Call("incident.Config.Failed", func() { w.cfg.Failed(w.folder.Path(it.name()), err) })
	}
}

// surround asks what surrounds a finding, and returns what is known when the time of
// the item has passed, or before it if a finding that ends the process came. The
// goroutine that reported the finding may hold locks that the answer needs; partial says
// that there was no whole answer.
func (w *Writer) surround(it *item) (known Surroundings, partial bool) {
	if w.cfg.Around == nil {
		return Surroundings{}, false
	}
	until := it.until
	if soon := time.Now().Add(aMoment); until.Before(soon) {
		until = soon
	}
	ctx, cancel := context.WithDeadline(w.asking, until)
	defer cancel()
	if it.reply == nil {
		w.mu.Lock()
		if w.hurry = cancel; w.urgent > 0 {
			cancel()
		}
		w.mu.Unlock()
	}
	known.Incomplete = "the runtime did not answer in time"
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done(): // it has not answered for an earlier finding yet
		return known, true
	}
	steps := make(chan Surroundings)
	go func() {
		defer func() { <-w.turn }()
		defer close(steps)
		usercode.Call("incident.Config.Around", func() {
			for s := range w.cfg.Around(ctx, it.finding) {
				select {
				case steps <- s:
				case <-ctx.Done():
					return
				}
			}
		})
	}()
	for {
		select {
		case s, more := <-steps:
			if !more {
				return known, ctx.Err() != nil && known.Incomplete != ""
			}
			known = s
		case <-ctx.Done():
			return known, known.Incomplete != ""
		}
	}
}

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

// Flush waits until everything reported before the call is written, failed or
// dropped, or ctx ends. It returns the first error of writing since the last
// Flush.
func (w *Writer) Flush(ctx context.Context) error {
	written := make(chan struct{})
	w.worker.Do(func() { close(written) }, math.MaxInt)
	if err := deadline.Await(ctx, written); err != nil {
		return fmt.Errorf("incidents are not written yet: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.err
	w.err = nil
	return err
}

// Close writes what waits, and the newest of the findings that were left out
// as repeats, until ctx ends; what is not written by then is dropped and
// counted. For half of that time at most it waits for what surrounds the findings.
// Findings reported afterwards are dropped. It returns the first
// error of writing since the last Flush. It may be called again.
func (w *Writer) Close(ctx context.Context) error {
	w.shut()
	if end, ok := ctx.Deadline(); ok {
		defer time.AfterFunc(time.Until(end)/2, w.stopAsking).Stop()
	}
	err := w.Flush(ctx)
	w.stopAsking() // if an answer never comes, its goroutine is left to itself
	w.mu.Lock()
	left := w.queued
	w.abandoned = true
	w.mu.Unlock()
	if left > 0 {
		return fmt.Errorf("%d incidents are not written: %w", left, ctx.Err())
	}
	return err
}

// shut takes no more findings, and queues what was left out as repeats.
func (w *Writer) shut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.closed = true
		w.limiter.rest(func(f core.Finding, r Repeats) { w.queue(&item{finding: f, repeats: r}) })
	}
}

// Stats is what became of the findings so far.
func (w *Writer) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stats
}

// Folder is where the files go.
func (w *Writer) Folder() string { return w.cfg.Folder }

// Files are the paths of the newest files that this writer wrote, oldest
// first, at most as many as the folder may hold. The slice is the caller's.
func (w *Writer) Files() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.paths)
}
