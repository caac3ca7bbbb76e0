package main

import (
	"fmt"
	"time"

	"golang.org/x/term"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/terminal"
)

// startLine shows what goes on until stop is called: one line that is rewritten
// on a terminal, and a line a second elsewhere.
func startLine(c *console, line func() string) (stop func()) {
	stopping, stopped := make(chan struct{}), make(chan struct{})
	interval, onTerminal, shown := time.Second, c.isTerminal(), false
	if onTerminal {
		interval = 200 * time.Millisecond
	}
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-stopping:
				if onTerminal && shown {
					c.printf("\n")
				}
				return
			case <-ticker.C:
				c.showLine(line(), onTerminal)
				shown = true
			}
		}
	}()
	return func() {
		close(stopping)
		<-stopped
	}
}

func (c *console) showLine(line string, onTerminal bool) {
	if !onTerminal {
		c.printf("%s\n", line)
		return
	}
	// A line that wraps could not be rewritten.
	if width, _, err := term.GetSize(int(c.stdout.Fd())); err == nil && width > 0 {
		line = line[:min(len(line), width-1)]
	}
	fmt.Fprintf(c.stdout, "\r\x1b[K%s", line) // numbers and our own words
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
		terminal.Size(s.Live.Bytes), terminal.Size(s.Limit), terminal.Size(s.Quarantined.Bytes), terminal.Size(s.Pending.Bytes), rate,
		s.WaitsQueued, s.WaitsElided, spans.Started, spans.Dropped+spans.Failed, p.rt.Findings().Total())
}
