package findings

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/internal/terminal"
	"github.com/fencepost-gpu/fencepost/telemetry/dump"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
)

// stopTime bounds the delivery of the finding that ends the process.
const stopTime = 2 * time.Second

var stopKinds = [...]core.FindingKind{
	core.FindingUseAfterFreeWrite, core.FindingUseAfterFreeRead, core.FindingOutOfBoundsWrite, core.FindingUnderflow,
	core.FindingSealedWrite, core.FindingStrayWrite, core.FindingMissingFence, core.FindingReuseRace,
	core.FindingUseBeforeAlloc, core.FindingUndeclaredAccess,
}

// StopKinds are the findings that end the process.
func StopKinds() []core.FindingKind { return slices.Clone(stopKinds[:]) }

// stops reports whether a finding ends the process: one that is not proven does not.
func stops(f core.Finding) bool { return !f.Unproven && slices.Contains(stopKinds[:], f.Kind) }

// StopConfig says how a process is ended.
type StopConfig struct {
	// Flushes are called before the end, each with the time that is left.
	Flushes []func(context.Context) error
	// OnStop, if not nil, is called in place of the exit.
	OnStop func(core.Finding)
	// ExitCode is the process's.
	ExitCode int
}

// stopper ends the process upon a finding.
type stopper struct {
	begun     atomic.Bool
	delivered chan struct{}
	incidents *incident.Writer // nil if there is no folder for them
	flushes   []func(context.Context) error
	onStop    func(core.Finding)
	code      int
	stderr    io.Writer
	exit      func(int)
}

func newStopper(cfg StopConfig, incidents *incident.Writer, dumps *dump.Writer) *stopper {
	s := &stopper{delivered: make(chan struct{}), incidents: incidents, flushes: cfg.Flushes, onStop: cfg.OnStop, code: cfg.ExitCode,
		stderr: os.Stderr, exit: os.Exit}
	if dumps != nil {
		s.flushes = append(s.flushes, func(ctx context.Context) error {
			_, err := dumps.Now(ctx, dump.Finding)
			return err
		})
	}
	return s
}

// first reports whether the caller is the first to report what stops the process.
func (s *stopper) first() bool { return s.begun.CompareAndSwap(false, true) }

// wait keeps whoever reports another meanwhile, as the process must not go on;
// with OnStop it goes on as soon as the first is delivered.
func (s *stopper) wait() { <-s.delivered }

// end ends the process for f, the first.
func (s *stopper) end(f core.Finding, trace func(core.Finding) core.Finding, tell func(core.Finding)) {
	defer close(s.delivered)
	f = tracedSoon(f, trace)
	write := func(context.Context) (string, error) { return "", nil }
	if s.incidents != nil {
		f.Incident, write = s.incidents.Urgent(f)
	}
	written := s.deliver(f, tell, write)
	said := f
	said.Incident = "" // the last line says what became of it
	s.say(said, written)
	if s.onStop == nil {
		s.exit(s.code)
		return
	}
	// Who reports may hold locks that closing the runtime takes.
	go s.onStop(f)
}

// tracedSoon traces f, unless a processor of the program's keeps it for more than a
// moment: the file must not wait for that.
func tracedSoon(f core.Finding, trace func(core.Finding) core.Finding) core.Finding {
	done := make(chan core.Finding, 1)
	go func() { done <- trace(f) }()
	select {
	case traced := <-done:
		return traced
	case <-time.After(deadline.LastMoment):
		return f
	}
}

// deliver tells of f, writes the incident and flushes log and spans, all at once
// and for stopTime at most, even where one of them does not keep to its context:
// what the program brought must not keep it. It says in one line what became of
// the incident.
func (s *stopper) deliver(f core.Finding, tell func(core.Finding), write func(context.Context) (string, error)) string {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	written, told := make(chan string, 1), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() { written <- s.writeIncident(ctx, write) })
	all.Go(func() { tell(f); close(told) })
	for _, flush := range s.flushes {
		all.Go(func() {
			select { // the finding's span is to be among them
			case <-told:
			case <-time.After(deadline.LastMoment):
			}
			_ = flush(ctx) // the process ends, and there is nobody to tell
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
	select {
	case line := <-written:
		return line
	default:
		return "the incident could not be written in time"
	}
}

func (s *stopper) writeIncident(ctx context.Context, write func(context.Context) (string, error)) string {
	if s.incidents == nil {
		return "no incident file: FENCEPOST_INCIDENTS names no folder"
	}
	path, err := write(ctx)
	if path == "" {
		return fmt.Sprintf("the incident could not be written: %v", err)
	}
	return "incident: " + path
}

// say announces the stop, and waits a moment for who reads it: a pipe that nobody
// empties must not keep the process.
func (s *stopper) say(f core.Finding, incident string) {
	said := make(chan struct{})
	go func() { s.announce(f, incident); close(said) }()
	select {
	case <-said:
	case <-time.After(deadline.LastMoment):
	}
}

func (s *stopper) announce(f core.Finding, incident string) {
	end := fmt.Sprintf("exit code %d", s.code)
	if s.onStop != nil {
		end = "stopping is left to the program"
	}
	terminal.Fprintf(s.stderr, "fencepost: stopped by policy: GPU memory is corrupt or may be; %s\n%s\n%s\n", end, terminal.Lines(f.String()), incident)
}
