package main

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
)

// progress shows what goes on: one line that is rewritten on a terminal, and
// a line a second elsewhere.
type progress struct {
	out      *os.File
	rt       *fencepost.Runtime
	spans    *spanPipe
	terminal bool
	stopping chan struct{}
	stopped  chan struct{}
	last     uint64
	lastAt   time.Time
}

func startProgress(out *os.File, rt *fencepost.Runtime, spans *spanPipe) *progress {
	p := &progress{out: out, rt: rt, spans: spans, terminal: term.IsTerminal(int(out.Fd())),
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
				fmt.Fprintln(p.out)
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
	for op := core.OpAllocate; op <= core.OpAbort; op++ {
		done += ops.Succeeded(op)
	}
	now := time.Now()
	rate := float64(done-p.last) / now.Sub(p.lastAt).Seconds()
	p.last, p.lastAt = done, now
	line := p.line(rate)
	if p.terminal {
		// A line that wraps could not be rewritten.
		if width, _, err := term.GetSize(int(p.out.Fd())); err == nil && width > 0 {
			line = line[:min(len(line), width-1)]
		}
		fmt.Fprintf(p.out, "\r\x1b[K%s", line)
		return
	}
	fmt.Fprintln(p.out, line)
}

func (p *progress) line(rate float64) string {
	s, spans := p.rt.Stats(), p.spans.pipe.Counts()
	return fmt.Sprintf("live %s  pending %s  quarantined %s  of %s | %.0f ops/s | waits %d queued %d elided | spans %d started %d dropped | findings %d",
		fencepost.FormatBytes(s.Live.Bytes), fencepost.FormatBytes(s.Pending.Bytes), fencepost.FormatBytes(s.Quarantined.Bytes), fencepost.FormatBytes(s.Limit), rate,
		s.WaitsQueued, s.WaitsElided, spans.Started, spans.Dropped+spans.Failed, p.rt.Findings().Total())
}
