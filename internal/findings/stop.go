package findings

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/internal/terminal"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
)

// stopTime bounds the delivery of the finding that ends the process.
const stopTime = 2 * time.Second

var stopKinds = [...]core.FindingKind{
	names.FindingUseAfterFreeWrite, names.FindingUseAfterFreeRead, names.FindingOutOfBoundsWrite,
	names.FindingOutOfBoundsRead, names.FindingUnderflow,
	names.FindingSealedWrite, names.FindingStrayWrite, names.FindingMissingFence, names.FindingReuseRace,
	names.FindingUseBeforeAlloc, names.FindingUndeclaredAccess,
}

// StopKinds are the findings that end the process.
func StopKinds() []core.FindingKind { return slices.Clone(stopKinds[:]) }

// StopConfig says how a process is ended.
type StopConfig struct {
	// Flushes are called before the end, at once and each with the time that is left,
	// when the finding was told or a moment has passed.
	Flushes []func(context.Context) error
	// OnStop, if not nil, is called in place of the exit.
	OnStop func(core.Finding)
	// ExitCode is the process's.
	ExitCode int
}

// stopper is how far the process has been ended. Who reports another finding meanwhile
// waits until the first is delivered.
type stopper struct {
	begun     atomic.Bool
	delivered chan struct{}
}

// end ends the process for f, the first, or leaves that to the program.
func (r *Reporter) end(f core.Finding) {
	traced := make(chan core.Finding, 1)
	await(deadline.LastMoment, func() { traced <- r.cfg.Collection.Trace(f) })
	select {
	case f = <-traced:
	default: // it is told without its span
	}
	write := func(context.Context) (string, error) { return "", nil }
	if r.cfg.Incidents != nil {
		f.Incident, write = r.cfg.Incidents.Urgent(f)
	}
	written := r.deliver(f, write)
	said := f
	said.Incident = "" // the last line says what became of it
	await(deadline.LastMoment, func() { announce(said, written, r.cfg.Stop) })
	if r.cfg.Stop.OnStop == nil {
		os.Exit(r.cfg.Stop.ExitCode)
	}
	// Who reports may hold locks that closing the runtime takes.
	go usercode.Call("Config.OnStop", func() { r.cfg.Stop.OnStop(f) })
	close(r.stop.delivered)
}

// await calls f, and waits for it no longer than limit: neither a processor of spans
// that keeps its caller nor a pipe that is not read must keep the process.
func await(limit time.Duration, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done) // also where f ends the goroutine
		f()
	}()
	select {
	case <-done:
	case <-time.After(limit):
	}
}

// deliver tells of f, writes the incident and makes the flushes, all at once and for
// stopTime at most, even where one of them does not keep to its context: what the
// program brought must not keep it. It says in one line what became of the incident.
func (r *Reporter) deliver(f core.Finding, write func(context.Context) (string, error)) string {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	written, told := make(chan string, 1), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() { written <- r.writeIncident(ctx, write) })
	all.Go(func() {
		defer close(told)
		r.tell(f)
	})
	for _, flush := range r.cfg.Stop.Flushes {
		all.Go(func() {
			select { // the finding's span and record are to be among them
			case <-told:
			case <-time.After(deadline.LastMoment):
			}
			// the process ends, and there is no caller to tell
			usercode.Call("a flush of a sink or of the tracer provider", func() { _ = flush(ctx) })
		})
	}
	await(stopTime, all.Wait)
	select {
	case line := <-written:
		return line
	default:
		return "the incident could not be written in time"
	}
}

func (r *Reporter) writeIncident(ctx context.Context, write func(context.Context) (string, error)) string {
	if r.cfg.Incidents == nil {
		return "no incident file: FENCEPOST_INCIDENTS names no folder"
	}
	path, err := write(ctx)
	if path == "" {
		return fmt.Sprintf("the incident could not be written: %v", err)
	}
	return "incident: " + path
}

// announce is what the process says last.
func announce(f core.Finding, incident string, stop *StopConfig) {
	end := fmt.Sprintf("exit code %d", stop.ExitCode)
	if stop.OnStop != nil {
		end = "stopping is left to the program"
	}
	terminal.Fprintf(os.Stderr, "fencepost: stopped by policy: GPU memory is corrupt or may be; %s\n%s\n%s\n", end, terminal.Lines(f.String()), incident)
}
