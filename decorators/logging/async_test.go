package logging

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

// brief makes rounds short, for tests that wait for one.
var brief = Queue{Size: 8, Delay: time.Millisecond}

// gate is a writer that is stuck until it is opened.
type gate struct {
	entered chan struct{}
	open    chan struct{}
	mu      sync.Mutex
	buf     bytes.Buffer
}

func newGate() *gate { return &gate{entered: make(chan struct{}, 100), open: make(chan struct{})} }

func (g *gate) Write(p []byte) (int, error) {
	g.entered <- struct{}{}
	<-g.open
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.buf.Write(p)
}

func (g *gate) lines() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return bytes.Count(g.buf.Bytes(), []byte{'\n'})
}

func TestAStuckWriterCostsRecordsAndNotTime(t *testing.T) {
	g := newGate()
	s := NewJSONSink(g, brief)
	s.Put(numbered(1))
	<-g.entered
	for seq := range uint64(8 + 5) {
		s.Put(numbered(seq + 2))
	}
	if n := s.Dropped(); n != 5 {
		t.Errorf("dropped %d, want 5", n)
	}
	hurry, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
	defer cancel()
	expect.Error(t, s.Flush(hurry), context.DeadlineExceeded, "flush")
	close(g.open)
	if err := s.Close(soon(t)); err != nil {
		t.Errorf("close: %v", err)
	}
	if n := g.lines(); n != 9 || s.Dropped() != 5 {
		t.Errorf("%d lines, %d dropped", n, s.Dropped())
	}
}

func TestCloseGivesUpWhenItsContextEnds(t *testing.T) {
	g := newGate()
	s := NewJSONSink(g, brief)
	s.Put(numbered(1))
	<-g.entered
	s.Put(numbered(2))
	hurry, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
	defer cancel()
	expect.Error(t, s.Close(hurry), context.DeadlineExceeded, "close")
	close(g.open)
	<-s.done
	if n := g.lines(); n != 1 || s.Dropped() != 1 {
		t.Errorf("%d lines, %d dropped: want the line under way and no more", n, s.Dropped())
	}
}

func TestARecordIsWrittenWithoutAFlush(t *testing.T) {
	for _, size := range []int{1, 2, 8} { // 1 and 2 are urgent at once
		g := newGate()
		close(g.open)
		s := NewJSONSink(g, Queue{Size: size, Delay: time.Millisecond})
		for seq := uint64(1); seq <= 3; seq++ {
			s.Put(numbered(seq))
			<-g.entered
		}
		if err := s.Close(soon(t)); err != nil || g.lines() != 3 {
			t.Errorf("size %d: %d lines, %v", size, g.lines(), err)
		}
	}
}

// faulty is a writer that takes a few bytes and fails, as often as told.
type faulty struct {
	fails int
	takes int
	buf   bytes.Buffer
}

func (f *faulty) Write(p []byte) (int, error) {
	if f.fails == 0 {
		return f.buf.Write(p)
	}
	f.fails--
	n, _ := f.buf.Write(p[:min(f.takes, len(p))])
	return n, errBad
}

func TestWriteErrorsAreCountedAndReportedOnce(t *testing.T) {
	f := &faulty{fails: 2}
	var reports atomic.Int64
	s := NewJSONSink(f, Queue{OnError: func(err error) {
		if !errors.Is(err, errBad) {
			t.Errorf("reported %v", err)
		}
		reports.Add(1)
	}})
	for seq := range uint64(2) {
		s.Put(numbered(seq + 1))
		expect.Error(t, s.Flush(soon(t)), errBad, "flush")
	}
	s.Put(numbered(3))
	if err := s.Flush(soon(t)); err != nil {
		t.Errorf("flush after the writer recovered: %v", err)
	}
	if err := s.Close(soon(t)); err != nil {
		t.Errorf("close: %v", err)
	}
	if s.Failures() != 2 || s.Dropped() != 2 || reports.Load() != 1 {
		t.Errorf("%d failures, %d dropped, %d reports", s.Failures(), s.Dropped(), reports.Load())
	}
	if got := f.buf.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `"seq":3`) {
		t.Errorf("wrote %q", got)
	}
}

func TestALineCutShortCostsOneLine(t *testing.T) {
	f := &faulty{fails: 1}
	f.takes = len(newCSVLines(io.Discard, testStart).appendLine(nil, &Record{})) + len(CSVHeader) + 10
	c := newCSVLines(f, testStart)
	if n, err := c.write([]Record{{}, {}, {}}); n != 1 || !errors.Is(err, errBad) {
		t.Errorf("%d got through, %v", n, err)
	}
	if n, err := c.write([]Record{{}}); n != 1 || err != nil {
		t.Errorf("%d got through, %v", n, err)
	}
	lines := strings.Split(f.buf.String(), "\n")
	if len(lines) != 5 || lines[0] != CSVHeader || lines[3] != lines[1] || lines[2] == lines[1] {
		t.Errorf("got %q, want a header, a line, a torn line, a line", lines)
	}
}

func TestAHeaderCutShortIsContinued(t *testing.T) {
	f := &faulty{fails: 1, takes: 10}
	c := newCSVLines(f, testStart)
	if n, err := c.write(nil); n != 0 || !errors.Is(err, errBad) {
		t.Errorf("%d got through, %v", n, err)
	}
	if n, err := c.write([]Record{{}}); n != 1 || err != nil {
		t.Errorf("%d got through, %v", n, err)
	}
	if !strings.HasPrefix(f.buf.String(), CSVHeader+"\n0,") {
		t.Errorf("got %q", f.buf.String())
	}
}

type short struct{}

func (short) Write(p []byte) (int, error) { return len(p) - 1, nil }

func TestAShortWriteIsAnError(t *testing.T) {
	l := newJSONLines(short{}, testStart)
	if n, err := l.write([]Record{{}}); n != 0 || !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("%d got through, %v", n, err)
	}
}

func TestCloseMayBeCalledAgainAndPutIsThenALoss(t *testing.T) {
	f := &faulty{fails: 1}
	s := NewJSONSink(f, Queue{OnError: func(error) {}})
	s.Put(numbered(1))
	for range 2 {
		expect.Error(t, s.Close(soon(t)), errBad, "close")
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	expect.Error(t, s.Close(ended), errBad, "close with an ended context")
	if err := s.Flush(soon(t)); err != nil {
		t.Errorf("flush: %v", err)
	}
	s.Put(numbered(2))
	if n := s.Dropped(); n != 2 {
		t.Errorf("dropped %d, want the failed and the late one", n)
	}
}

// TestCloseUnderLoad closes while others put: every record is either written
// or counted as dropped.
func TestCloseUnderLoad(t *testing.T) {
	const writers, each = 8, 2000
	var buf bytes.Buffer
	s := NewJSONSink(&buf, Queue{Size: 512, Delay: time.Millisecond})
	var numbers sequence
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				s.Put(numbered(numbers.next()))
			}
		})
	}
	for numbers.last.Load() < writers*each/2 {
		time.Sleep(100 * time.Microsecond)
	}
	expect.Success(t, s.Close(soon(t)))
	wg.Wait()
	written := bytes.Count(buf.Bytes(), []byte{'\n'})
	if got := uint64(written) + s.Dropped(); got != writers*each {
		t.Errorf("%d written and %d dropped of %d", written, s.Dropped(), writers*each)
	}
}

// unruly is a writer and a handler that does not return from every third call.
type unruly struct {
	slog.Handler
	calls, written atomic.Int64
	exits          bool
}

func (u *unruly) call(lines int) {
	if u.calls.Add(1)%3 == 0 {
		if u.exits {
			runtime.Goexit()
		}
		panic("the writer's bug")
	}
	u.written.Add(int64(lines))
}

func (u *unruly) Write(p []byte) (int, error) {
	u.call(bytes.Count(p, []byte{'\n'}))
	return len(p), nil
}

func (u *unruly) Enabled(context.Context, slog.Level) bool  { return true }
func (u *unruly) Handle(context.Context, slog.Record) error { u.call(1); return nil }

// A writer or handler that panics or ends the goroutine costs what it was given, which is counted.
// Flush and Close return.
func TestAWriterThatDoesNotReturnCostsWhatItWasGiven(t *testing.T) {
	before := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler)) // which is told of the panics
	defer slog.SetDefault(before)
	for _, exits := range []bool{false, true} {
		for name, sink := range map[string]func(*unruly, Queue) *AsyncSink{
			"JSON": func(u *unruly, q Queue) *AsyncSink { return NewJSONSink(u, q) },
			"slog": func(u *unruly, q Queue) *AsyncSink { return NewSlogSink(slog.New(u), q) },
		} {
			u, told := &unruly{exits: exits}, 0
			s := sink(u, Queue{Size: 64, Delay: time.Millisecond, OnError: func(error) {
				if told++; exits {
					runtime.Goexit()
				}
				panic("OnError's bug")
			}})
			const flushes, each = 20, 5
			failed := 0
			for round := range uint64(flushes) {
				for i := range uint64(each) {
					s.Put(numbered(round*each + i + 1))
				}
				if err := s.Flush(soon(t)); err != nil {
					expect.Error(t, err, errPanicked, "flush")
					failed++
				}
			}
			if err := s.Close(soon(t)); err != nil {
				expect.Error(t, err, errPanicked, "close")
			}
			// A handler has written a part of what was given to it before it did not return.
			got := flushes*each - int(s.Dropped())
			if failed == 0 || told != 1 || s.Failures() == 0 || int(u.written.Load()) < got || name == "JSON" &&
				int(u.written.Load()) != got {
				t.Errorf("%s, exits %v: %d flushes say so, told %d times of %d failures, %d written, %d dropped", name, exits,
					failed, told, s.Failures(), u.written.Load(), s.Dropped())
			}
		}
	}
}
