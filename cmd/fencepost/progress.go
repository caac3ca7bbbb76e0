package main

import (
	"fmt"
	"time"

	"golang.org/x/term"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/terminal"
)

// progress shows what goes on: one line that is rewritten on a terminal, and
// a line a second elsewhere.
type progress struct {
	console  *console
	rt       *fencepost.Runtime
	spans    *spanPipe
	terminal bool
	stopping chan struct{}
	stopped  chan struct{}
	last     uint64
	lastAt   time.Time
}

func startProgress(c *console, rt *fencepost.Runtime, spans *spanPipe) *progress {
	p := &progress{console: c, rt: rt, spans: spans, terminal: c.isTerminal(),
		stopping: make(chan struct{}), stopped: make(chan struct{}), lastAt: time.Now()}
	go p.run()
	return p
}

func (p *progress) run() {
	defer close(p.stopped)
	interval := time.Second
	if p.terminal {
		interval = 200 * time.Millisecond
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-p.stopping:
			if p.terminal {
				p.console.printf("\n")
			}
			return
		case <-ticker.C:
			p.show()
		}
	}
}

func (p *progress) stop() {
	close(p.stopping)
	<-p.stopped
}

func (p *progress) show() {
	ops, done := p.rt.Operations(), uint64(0)
	for op := oplog.OpAllocate; op <= oplog.OpAbort; op++ {
		done += ops.Succeeded(op)
	}
	now := time.Now()
	rate := float64(done-p.last) / now.Sub(p.lastAt).Seconds()
	p.last, p.lastAt = done, now
	line := p.line(rate)
	if p.terminal {
		// A line that wraps could not be rewritten.
		if width, _, err := term.GetSize(int(p.console.stdout.Fd())); err == nil && width > 0 {
			line = line[:min(len(line), width-1)]
		}
		fmt.Fprintf(p.console.stdout, "\r\x1b[K%s", line) // numbers and our own words
		return
	}
	p.console.printf("%s\n", line)
}

func (p *progress) line(rate float64) string {
	s, spans := p.rt.Stats(), p.spans.pipe.Counts()
	return fmt.Sprintf("live %s of %s, quarantined %s; freed and waiting for the device %s | %.0f ops/s | waits %d queued, %d not needed | spans %d started %d dropped | findings %d",
		terminal.Size(s.Live.Bytes), terminal.Size(s.Limit), terminal.Size(s.Quarantined.Bytes), terminal.Size(s.Pending.Bytes), rate,
		s.WaitsQueued, s.WaitsElided, spans.Started, spans.Dropped+spans.Failed, p.rt.Findings().Total())
}
