package fencepost

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/telemetry/dump"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
)

// Policies for [Config.GuardPolicy].
const (
	// PolicyReport reports findings and goes on.
	PolicyReport = "report"
	// PolicyRefuse also refuses a misuse in the call that a caller makes it
	// with, where there is such a call; see [debugguard.Config.Refuse].
	PolicyRefuse = "refuse"
	// PolicyStop ends the process with exit code [StopExitCode] upon a finding
	// of [StopKinds]: memory is corrupt, or may be, and every result from then
	// on may be wrong. Before that the finding is written to its incident
	// file, the history dumped, and log and spans are flushed, for at most 2 seconds in all.
	PolicyStop = "stop"
)

// StopExitCode is the exit code of a process that PolicyStop ends.
const StopExitCode = 70

// stopTime bounds the delivery of the finding that ends the process.
const stopTime = 2 * time.Second

var stopKinds = [...]core.FindingKind{
	core.FindingUseAfterFreeWrite, core.FindingUseAfterFreeRead, core.FindingOutOfBoundsWrite, core.FindingUnderflow,
	core.FindingSealedWrite, core.FindingStrayWrite, core.FindingMissingFence, core.FindingReuseRace,
	core.FindingUseBeforeAlloc, core.FindingUndeclaredAccess,
}

// StopKinds are the findings that mean that bytes were, or may have been,
// changed or read behind their owner's back: writes and reads outside a block's
// bounds or life, and accesses that nothing orders. Misuses that were refused
// (double, foreign and stale handles), leaks, a want of memory, a lost device
// and the books are not among them.
func StopKinds() []core.FindingKind { return slices.Clone(stopKinds[:]) }

// stopper ends the process upon a finding.
type stopper struct {
	once      sync.Once
	incidents *incident.Writer
	flushes   []func(context.Context) error
	onStop    func(core.Finding)
	stderr    io.Writer
	exit      func(int)
}

func newStopper(cfg Config, incidents *incident.Writer, dumps *dump.Writer) *stopper {
	s := &stopper{incidents: incidents, onStop: cfg.OnStop, stderr: os.Stderr, exit: os.Exit}
	for _, sink := range cfg.LogSinks {
		if sink != nil {
			s.flushes = append(s.flushes, sink.Flush)
		}
	}
	if dumps != nil {
		s.flushes = append(s.flushes, func(ctx context.Context) error {
			_, err := dumps.Now(ctx, dump.Finding)
			return err
		})
	}
	if provider, ok := cfg.TracerProvider.(interface{ ForceFlush(context.Context) error }); ok {
		s.flushes = append(s.flushes, provider.ForceFlush)
	}
	return s
}

// take stops the process if f is a reason to, and reports whether f was
// delivered as that. Who reports another meanwhile waits, as the process must
// not go on; with OnStop it goes on as soon as the first is delivered.
func (s *stopper) take(f core.Finding) (delivered bool) {
	if !slices.Contains(stopKinds[:], f.Kind) {
		return false
	}
	s.once.Do(func() {
		delivered = true
		s.say(f, s.deliver(f))
		if s.onStop == nil {
			s.exit(StopExitCode)
			return
		}
		// Who reports may hold locks that closing the runtime takes.
		go s.onStop(f)
	})
	return delivered
}

// deliver writes the incident and flushes log and spans, all at once and for
// stopTime at most, even where one of them does not keep to its context. It
// says in one line what became of the incident.
func (s *stopper) deliver(f core.Finding) string {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	written := make(chan string, 1)
	var all sync.WaitGroup
	all.Go(func() { written <- s.writeIncident(ctx, f) })
	for _, flush := range s.flushes {
		all.Go(func() { _ = flush(ctx) }) // the process ends, and there is nobody to tell
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

func (s *stopper) writeIncident(ctx context.Context, f core.Finding) string {
	if s.incidents == nil {
		return "no incident file: FENCEPOST_INCIDENTS names no folder"
	}
	path, err := s.incidents.Deliver(ctx, f)
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
	case <-time.After(lastMoment):
	}
}

func (s *stopper) announce(f core.Finding, incident string) {
	end := fmt.Sprintf("exit code %d", StopExitCode)
	if s.onStop != nil {
		end = "stopping is left to the program"
	}
	fmt.Fprintf(s.stderr, "fencepost: stopped by policy: GPU memory is corrupt or may be; %s\n%v\n%s\n", end, f, incident)
}
