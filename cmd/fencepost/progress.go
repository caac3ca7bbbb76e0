package main

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/size"
	"github.com/fencepost-gpu/fencepost/internal/terminal"
)

// startLine shows what goes on until stop is called: one line that is rewritten
// on a terminal, and a line a second elsewhere.
func startLine(c *console, line func() string) (stop func()) {
	to, file := c.text()
	l := &liveLine{to: to, file: file, onTerminal: c.forEyes(file), line: line}
	return l.start(time.Second)
}

// startBrief shows on standard error what goes on, at once, and takes it away when stop is called.
// It shows nothing where that is no terminal.
func startBrief(c *console, line func() string) (stop func()) {
	if !c.forEyes(c.stderr) {
		return func() {}
	}
	l := &liveLine{to: c.problems, file: c.stderr, onTerminal: true, brief: true, line: line}
	l.show()
	end := l.start(time.Second)
	c.brief = l
	return func() {
		c.brief = nil
		end()
	}
}

// liveLine is a line that is shown again and again.
type liveLine struct {
	to   *terminal.Writer
	file *os.File
	// onTerminal rewrites the line, and brief takes it away in the end.
	onTerminal, brief bool
	line              func() string
	shown             bool
}

func (l *liveLine) start(interval time.Duration) (stop func()) {
	stopping, stopped := make(chan struct{}), make(chan struct{})
	if l.onTerminal {
		interval = 200 * time.Millisecond
	}
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-stopping:
				l.end()
				return
			case <-ticker.C:
				l.show()
			}
		}
	}()
	return func() {
		close(stopping)
		<-stopped
	}
}

func (l *liveLine) show() {
	l.shown = true
	line := terminal.Escape(l.line())
	if !l.onTerminal {
		terminal.Fprintf(l.to, "%s\n", line)
		return
	}
	// A line that wraps could not be rewritten.
	if width, _, err := term.GetSize(int(l.file.Fd())); err == nil && width > 0 {
		line = line[:min(len(line), width-1)]
	}
	l.rewrite(line)
}

func (l *liveLine) rewrite(line string) { fmt.Fprintf(l.file, "\r\x1b[K%s", line) }

func (l *liveLine) end() {
	switch {
	case l.brief:
		l.rewrite("")
	case l.onTerminal && l.shown:
		terminal.Fprintf(l.to, "\n")
	}
}

// progress is what the demo's line shows.
type progress struct {
	rt     *fencepost.Runtime
	spans  *spanPipe
	last   uint64
	lastAt time.Time
}

func startProgress(c *console, rt *fencepost.Runtime, spans *spanPipe) (stop func()) {
	return startLine(c, (&progress{rt: rt, spans: spans, lastAt: time.Now()}).show)
}

func (p *progress) show() string {
	ops, done := p.rt.Operations(), uint64(0)
	for op := oplog.OpAllocate; op <= oplog.OpAbort; op++ {
		done += ops.Succeeded(op)
	}
	now := time.Now()
	rate := float64(done-p.last) / now.Sub(p.lastAt).Seconds()
	p.last, p.lastAt = done, now
	s, spans := p.rt.Stats(), p.spans.pipe.Counts()
	return fmt.Sprintf("live %s of %s, quarantined %s; freed %s (serves its stream until the device has passed it) | %.0f ops/s | waits %d queued, %d not needed | spans %d started %d dropped | findings %d",
		size.Of(s.Live.Bytes), size.Of(s.Limit), size.Of(s.Quarantined.Bytes), size.Of(s.Pending.Bytes), rate,
		s.WaitsQueued, s.WaitsElided, spans.Started, spans.Dropped+spans.Failed, p.rt.Findings().Total())
}
