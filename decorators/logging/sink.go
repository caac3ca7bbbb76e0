package logging

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
)

// Sink takes records. All methods are safe for concurrent use. If Put panics, an error record goes
// to slog.Default, and the operation goes on without the record.
type Sink interface {
	// Put takes one record. It must not block: what it can't take at once it
	// drops and counts.
	Put(r Record)
	// Flush waits until everything put before the call is written, or ctx
	// ends. It returns the first write error since the last Flush.
	Flush(ctx context.Context) error
	// Close flushes, bounded by ctx, and ends what the sink runs. Records
	// put afterwards are dropped and counted. It may be called again.
	Close(ctx context.Context) error
	// Dropped is the number of records lost so far.
	Dropped() uint64
}

// The defaults of [Queue].
const (
	// DefaultQueueSize is 4096 records, 1.2 MiB, and as much again for those that are being written.
	DefaultQueueSize = 4096
	// DefaultQueueDelay is 20 milliseconds.
	DefaultQueueDelay = 20 * time.Millisecond
)

// Queue configures the asynchronous part of a sink. The zero Queue is a good
// one.
type Queue struct {
	// Size is how many records may wait while others are being written; one
	// more is dropped. Zero or less means [DefaultQueueSize].
	Size int
	// Delay is how long records are gathered, so that they are written
	// together and in the order of their numbers. A record is written two
	// delays after it was put, sooner if the queue is half full. Zero or less
	// means [DefaultQueueDelay].
	Delay time.Duration
	// OnError is called with the sink's first write error, on the sink's own
	// goroutine; later ones are only counted. Nil means an error record to
	// slog.Default.
	OnError func(error)
}

func (q Queue) withDefaults() Queue {
	q.Size = cmp.Or(max(q.Size, 0), DefaultQueueSize)
	q.Delay = cmp.Or(max(q.Delay, 0), DefaultQueueDelay)
	if q.OnError == nil {
		q.OnError = func(err error) {
			slog.Error("fencepost: the allocation log can't be written; records are lost and counted", "error", err)
		}
	}
	return q
}

// AsyncSink is a [Sink] that formats and writes on a goroutine of its own,
// which runs until Close. A caller of Put never waits for the writer: when
// the queue is full the record is dropped and counted. All methods are safe
// for concurrent use.
type AsyncSink struct {
	config Queue
	queue  *queue
	output output

	// wake says that the queue is no longer empty, urgent that it is half
	// full. Both hold one signal, so that sending never blocks.
	wake, urgent chan struct{}
	flushes      chan chan error
	stop         chan struct{}
	stopOnce     sync.Once
	// done is closed when the goroutine has ended; result is set before.
	done   chan struct{}
	result error
	// abandoned tells the goroutine that no caller waits for the rest.
	abandoned atomic.Bool

	dropped, failures atomic.Uint64

	// What follows only the goroutine touches. It is kept here because a writer may end the
	// goroutine, and another goes on. unreported is the first write error since the last Flush,
	// flushing is where a Flush under way waits, began is set when the format's front was written.
	order      reorder
	unreported error
	flushing   chan error
	began      bool
}

// output is the format and the destination of a sink.
type output interface {
	// accepts says whether the format has a place for such a record. It is
	// called by Put and must be cheap.
	accepts(o outcome) bool
	// write writes records, in order, and returns how many got through. An
	// empty call writes what the format puts in front.
	write(records []Record) (int, error)
}

var _ Sink = (*AsyncSink)(nil)

// NewJSONSink returns a sink that writes JSON lines to w, in the format of
// the package comment. Every call of w.Write gets whole lines. w is not
// closed; it is used by one goroutine at a time.
func NewJSONSink(w io.Writer, q Queue) *AsyncSink {
	return newAsync(newJSONLines(w, processStart), q)
}

// NewCSVSink returns a sink that writes to w the CSV of RMM's logging
// adaptor, which RMM's replay benchmark and log tools read; see [CSVHeader].
// w is treated as by [NewJSONSink].
func NewCSVSink(w io.Writer, q Queue) *AsyncSink {
	return newAsync(newCSVLines(w, time.Now()), q)
}

// NewSlogSink returns a sink that logs to l: failures as errors, refusals as
// warnings, uses and releases as debug records, the rest as information.
// Message is "gpu memory " and the operation; the attributes are described in
// the package comment. A record whose level l does not log is not queued.
func NewSlogSink(l *slog.Logger, q Queue) *AsyncSink {
	return newAsync(&slogRecords{handler: l.Handler()}, q)
}

func newAsync(out output, q Queue) *AsyncSink {
	q = q.withDefaults()
	s := &AsyncSink{config: q, queue: newQueue(q.Size), output: out,
		wake: make(chan struct{}, 1), urgent: make(chan struct{}, 1),
		flushes: make(chan chan error), stop: make(chan struct{}), done: make(chan struct{})}
	usercode.Go("a log sink", s.run, func() { close(s.done) })
	return s
}

// Put queues r, or drops and counts it. What the format has no place for is
// neither.
func (s *AsyncSink) Put(r Record) {
	if !s.output.accepts(outcomeOf(&r.Event)) {
		return
	}
	switch waiting := s.queue.push(&r); waiting {
	case 0:
		s.dropped.Add(1)
	case (s.config.Size + 1) / 2:
		signal(s.urgent)
	case 1:
		signal(s.wake)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // one is under way already
	}
}

// Dropped counts the records that were lost: to a full queue, a failed write
// or a closed sink.
func (s *AsyncSink) Dropped() uint64 { return s.dropped.Load() }

// Failures counts the writes that failed.
func (s *AsyncSink) Failures() uint64 { return s.failures.Load() }

// Flush waits until what was put before the call is written, or ctx ends. It
// returns the first write error since the last Flush. After Close there is
// nothing to wait for.
func (s *AsyncSink) Flush(ctx context.Context) error {
	reply := make(chan error, 1)
	select {
	case <-s.done: // also if ctx has ended
		return nil
	default:
	}
	select {
	case s.flushes <- reply:
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("logging: flush: %w", context.Cause(ctx))
	}
	select {
	case err := <-reply:
		return err
	case <-ctx.Done():
		return fmt.Errorf("logging: flush: %w", context.Cause(ctx))
	}
}

// Close writes what waits and ends the sink's goroutine. If ctx ends before,
// it returns the cause; the goroutine then gives up the rest, which counts as
// dropped, and ends as soon as the writer lets go of it. Otherwise it returns
// the first write error since the last Flush, to every later call too.
func (s *AsyncSink) Close(ctx context.Context) error {
	s.queue.close()
	s.stopOnce.Do(func() { close(s.stop) })
	if deadline.Await(ctx, s.done) == nil {
		return s.result
	}
	s.abandoned.Store(true)
	return fmt.Errorf("logging: close: %w", context.Cause(ctx))
}

// chunk is how many records are written at once. Between chunks the worker
// looks whether it should give up.
const chunk = 256

// run is the sink's goroutine. It sleeps while nothing is queued. The first record starts the
// delay; when it ends, or the queue is half full, a round is written, and rounds go on until
// nothing waits. It begins again where a writer ended the goroutine.
func (s *AsyncSink) run() {
	if !s.began {
		s.began = true
		s.write(nil)
	}
	if s.flushing != nil {
		s.answer()
	}
	delay := time.NewTimer(s.config.Delay)
	defer delay.Stop()
	for {
		select {
		case <-s.wake:
			delay.Reset(s.config.Delay)
		case <-s.urgent:
			s.round()
			delay.Reset(s.config.Delay)
		case <-delay.C:
			s.round()
			if !s.order.empty() {
				delay.Reset(s.config.Delay)
			}
		case s.flushing = <-s.flushes:
			s.answer()
		case <-s.stop:
			s.writeRest()
			s.result = s.report()
			return
		}
	}
}

// answer does the Flush that waits.
func (s *AsyncSink) answer() {
	s.writeRest()
	s.flushing <- s.report()
	s.flushing = nil
}

// round writes what is due.
func (s *AsyncSink) round() { s.writeAll(s.order.round(s.queue)) }

// writeRest writes everything.
func (s *AsyncSink) writeRest() { s.writeAll(s.order.rest(s.queue)) }

func (s *AsyncSink) writeAll(due []Record) {
	tried := 0
	defer func() { s.order.drop(tried) }()
	for tried < len(due) {
		next := due[tried:]
		if s.abandoned.Load() {
			s.dropped.Add(uint64(len(next)))
			tried = len(due)
			break
		}
		next = next[:min(chunk, len(next))]
		tried += len(next)
		s.write(next)
	}
}

// errPanicked is the error of a write in which the program's code did not return.
var errPanicked = errors.New("logging: the writer or handler panicked, or called runtime.Goexit")

// write writes one chunk and accounts for what did not get through.
func (s *AsyncSink) write(records []Record) {
	written, err := 0, errPanicked
	defer func() {
		s.dropped.Add(uint64(len(records) - written))
		if err == nil {
			return
		}
		s.unreported = cmp.Or(s.unreported, err)
		if s.failures.Add(1) == 1 {
			usercode.Call("Queue.OnError", func() { s.config.OnError(err) })
		}
	}()
	usercode.Call("a log sink's writer or handler", func() { written, err = s.output.write(records) })
}

// report returns the error that no Flush has returned yet.
func (s *AsyncSink) report() error {
	err := s.unreported
	s.unreported = nil
	return err
}
