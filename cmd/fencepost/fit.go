package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cmd/fencepost/internal/output"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/environ"
	"github.com/fencepost-gpu/fencepost/internal/size"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
	"github.com/fencepost-gpu/fencepost/internal/traceio/fit"
)

type fitFlags struct {
	memory, mig, aside, resident, resource, guard, picture string
	jobs, ordinal                                          int
	bounds                                                 limitFlags
	json                                                   bool
}

func fitCommand(c *console, code *int) *cobra.Command {
	var f fitFlags
	cmd := &cobra.Command{
		Use:   "fit FILE|URL",
		Short: "Say whether a recorded program fits into a memory",
		Long: `Fit plays a history through the real stack, on a simulated device with the memory
of a machine, and says whether it fits, by which margin, how many requests would
be refused, and the smallest memory on which none is. Fragmentation, padding, the
guard's red zones and its quarantine are in it. Time is the recording's, also for
the guard's rate of samples.

Runs differ in how late the device is, and in the blocks that a guard chooses by
chance. So it says an interval: a limit of the upper end refuses nothing.

The history is a file that replay reads, or is asked of a running process: name
a URL such as http://127.0.0.1:9464. A log has the guard's padding and quarantine
in it, so that by default none is added; --guard plays the sizes that the program
asked for, through that guard.

If the history has jobs (Runtime.Do), it says how long they would wait for their
peaks to be there. With --jobs they are let in so, at most so many at once, and
what they do is played when they are in.

What the CUDA context, libraries and other processes take is in no history: see
--aside.

Exit codes: 0 it fits; 1 it does not, or that is not sure; 2 the file or a flag is
bad; 130 Ctrl-C.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			*code, err = runFit(cmd.Context(), c, f, args[0])
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.memory, "memory", "", "bytes of the device, such as 40GiB (default: as many as it takes)")
	flags.StringVar(&f.mig, "mig", "", "a MIG profile in place of --memory, such as 1g.10gb")
	flags.StringVar(&f.aside, "aside", "", "bytes of it that are others': context, libraries, processes (default: none; with --mig 512MiB)")
	flags.StringVar(&f.resident, "resident", "", "bytes that are live all along and not in the history (default: what a running process says, of a file none)")
	flags.StringVar(&f.resource, "resource", "", "async, pool or direct (default: pool)")
	flags.StringVar(&f.guard, "guard", "", "debug guard: off, ledger, sample[:BYTES] or hunt (default: the recorded padding)")
	flags.IntVar(&f.jobs, "jobs", 0, "let the recorded jobs in by their peaks, so many at once at most")
	flags.IntVar(&f.ordinal, "ordinal", -1, "the device of a history of several")
	flags.StringVar(&f.picture, "picture", "", "write an SVG of the memory over time to this file")
	f.bounds.add(cmd)
	flags.BoolVar(&f.json, "json", false, "print one JSON object on standard output, and the report on standard error")
	return cmd
}

// statePath is where [fencepost.NewHandler] has the live view's state.
const statePath = "/debug/gpumem/state"

// migAside is what is left aside of a MIG instance: the context takes up to a half of it, and Open leaves the other free.
const migAside = 512 << 20

// migMiB is the memory of MIG's profiles in MiB as "nvidia-smi mig -lgip" lists it: of GPUs and drivers
// that differ under one name, the least.
var migMiB = map[string]uint64{
	"1g.6gb": 5949, "2g.12gb": 11970, "4g.24gb": 24064, // A30
	"1g.5gb": 4864, "2g.10gb": 9856, "3g.20gb": 19968, "4g.20gb": 19968, "7g.40gb": 40192, // A100 40GB
	"1g.10gb": 9728, "1g.20gb": 19968, "2g.20gb": 19968, "3g.40gb": 40192, "4g.40gb": 40192, "7g.80gb": 80640, // A100 80GB, H100
	"1g.12gb": 11008, "1g.24gb": 20480, "2g.24gb": 22016, "3g.47gb": 47226, "4g.47gb": 47226, "7g.94gb": 94842, // H100 94GB; 1g.24gb GB200
	"1g.18gb": 16384, "1g.35gb": 33024, "2g.35gb": 33024, "3g.71gb": 71168, "4g.71gb": 71168, "7g.141gb": 143104, // H200
	"1g.23gb": 20992, "1g.45gb": 45312, "2g.45gb": 45312, // B200
	"2g.48gb": 48517, // RTX PRO 6000 Blackwell
}

// machine is what the flags say.
func (f fitFlags) machine() (m fit.Machine, err error) {
	m = fit.Machine{Resource: fencepost.Backend(f.resource), Guard: fencepost.GuardMode(f.guard), Jobs: f.jobs, Device: f.ordinal}
	if f.jobs < 0 {
		return m, fmt.Errorf("--jobs %d: say 1 or more", f.jobs)
	}
	var aside uint64
	switch {
	case f.mig != "" && f.memory != "":
		return m, errors.New("--mig and --memory: say one of them")
	case f.mig != "":
		profile, _, _ := strings.Cut(f.mig, "+")
		if m.Memory, aside = migMiB[profile]<<20, migAside; m.Memory == 0 {
			return m, fmt.Errorf("--mig %q: known are %s; say the memory that nvidia-smi mig -lgip lists with --memory", f.mig, strings.Join(slices.Sorted(maps.Keys(migMiB)), ", "))
		}
	case f.memory != "":
		m.Memory, err = parseSize("--memory", f.memory)
	}
	if err == nil && f.aside != "" {
		aside, err = parseAny("--aside", f.aside)
	}
	if err == nil && f.resident != "" {
		m.Resident, err = parseAny("--resident", f.resident)
	}
	if err == nil && m.Memory > 0 && aside >= m.Memory {
		err = fmt.Errorf("--aside: %d bytes of %d leave nothing", aside, m.Memory)
	}
	if m.Memory > 0 {
		m.Memory -= aside
	}
	return m, err
}

// parseAny reads a flag that is a number of bytes, or 0.
func parseAny(flag, text string) (uint64, error) {
	bytes, err := fencepost.ParseBytes(text)
	if err != nil {
		return 0, fmt.Errorf("%s %q: %w", flag, text, err)
	}
	return bytes, nil
}

func runFit(ctx context.Context, c *console, f fitFlags, from string) (int, error) {
	m, err := f.machine()
	if err != nil {
		return exitBadInput, err
	}
	limits, err := f.bounds.limits()
	if err != nil {
		return exitBadInput, err
	}
	var picture *output.Target
	if f.picture != "" {
		var inputs []os.FileInfo
		if in, err := os.Stat(from); err == nil {
			inputs = append(inputs, in)
		}
		if picture, err = output.Find(f.picture, inputs...); err != nil {
			return exitBadInput, fmt.Errorf("--picture: %w", err)
		}
	}
	for _, v := range environ.Variables() { // the machine is what the flags say
		if err := os.Unsetenv(v.Name); err != nil {
			return exitProblem, err
		}
	}
	c.jsonOnly = f.json
	started, doing := time.Now(), new(atomic.Value)
	doing.Store("reading " + from)
	stop := startBrief(c, func() string {
		return fmt.Sprintf("fit: %s, %v", doing.Load(), time.Since(started).Round(time.Second))
	})
	defer func() { stop() }()
	trace, err := f.read(ctx, from, limits)
	if err != nil {
		return exitBadInput, err
	}
	doing.Store(fmt.Sprintf("playing %d rows some dozens of times", len(trace.Rows)))
	c.complainOf(from, trace.Passed)
	if at, ok := asURL(from); ok && f.resident == "" {
		m.Resident, err = f.askResident(ctx, at, trace)
		if errors.Is(err, core.ErrInvalidRequest) {
			return exitBadInput, err
		}
		if err != nil {
			c.complain(fmt.Errorf("what is live all along is not known, and not counted (--resident): %w", err))
		}
	}
	r, err := fit.Predict(ctx, trace, m)
	if errors.Is(err, core.ErrInvalidRequest) {
		return exitBadInput, err
	}
	if err != nil {
		return exitProblem, &problemError{err}
	}
	stop()
	stop = func() {}
	printFit(c, r)
	if f.json {
		err = c.printJSON(r)
	}
	if picture != nil {
		err = errors.Join(err, writePicture(picture, r.SVG()))
	}
	if err != nil {
		return exitProblem, &problemError{err}
	}
	if !r.Fits {
		return exitProblem, nil
	}
	return exitClean, nil
}

// read reads the trace of a file or of a running process.
func (f fitFlags) read(ctx context.Context, from string, limits alloctrace.Limits) (_ *alloctrace.Trace, err error) {
	if at, ok := asURL(from); ok && f.ordinal >= 0 && at.RawQuery == "" {
		at.RawQuery = fmt.Sprintf("device=%d", f.ordinal)
		from = at.String()
	}
	ctx, in, err := openHistory(ctx, from)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	return limits.Read(from, &untilStopped{ctx: ctx, r: in})
}

// askResident asks a running process what it has beyond its history, which its live view says.
func (f fitFlags) askResident(ctx context.Context, at *url.URL, trace *alloctrace.Trace) (_ uint64, err error) {
	at.Path, at.RawQuery = statePath, ""
	if f.ordinal >= 0 {
		at.RawQuery = fmt.Sprintf("device=%d", f.ordinal)
	}
	_, in, err := openHistory(ctx, at.String())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	type amount struct{ Bytes uint64 }
	var state struct {
		Device *struct {
			Memory struct{ Live, Quarantined amount }
		}
	}
	if err := json.NewDecoder(io.LimitReader(in, 64<<20)).Decode(&state); err != nil {
		return 0, err
	}
	if state.Device == nil {
		return 0, errors.New("the answer is no live view's")
	}
	has := state.Device.Memory
	return fit.Resident(trace, f.ordinal, has.Live.Bytes+has.Quarantined.Bytes)
}

func writePicture(to *output.Target, svg []byte) error {
	out, err := to.Create()
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, bytes.NewReader(svg)); err != nil {
		return errors.Join(err, out.Discard())
	}
	return out.Commit()
}

// printFit writes the report for people.
func printFit(c *console, r *fit.Report) {
	c.printf("%s\n%s (%s) through %s\n", r.Verdict(), r.File, r.Format, r.Resource)
	c.printf("  requests    %d, %d refused\n", r.Requests, r.Refused)
	if r.Refused > 0 {
		c.printf("              the first: %s\n", r.FirstRefusal)
	}
	if r.Unplayed > 0 {
		c.printf("              %d more are of jobs that were refused\n", r.Unplayed)
	}
	c.printf("  live        peak %d bytes (%s), as the program asks for it%s\n", r.PeakLive, fit.Size(r.PeakLive),
		orNone(r.Quarantined, ", of which the recording's guard may have had up to %s in quarantine"))
	c.printf("  charged     peak %d bytes (%s), with padding, pending and quarantined\n", r.PeakCharged,
		fit.Size(r.PeakCharged))
	c.printf("  held        peak %s of the device%s, with what is free beside blocks\n",
		between(r.PeakReservedLeast, r.PeakReserved), heldOn(r))
	if r.Needs == r.NeedsLeast {
		c.printf("  needs       %d bytes (%s): the smallest memory on which nothing is refused, within %s; found by replays\n", r.Needs, fit.Size(r.Needs), size.Of(r.Within))
	} else {
		c.printf("  needs       %s: a limit of the upper end refuses nothing; the lower end is what the best of %d ways to play it takes, within %s\n", between(r.NeedsLeast, r.Needs), r.Plays, size.Of(r.Within))
	}
	c.printf("  guard       %s\n", guardLine(r))
	c.printf("  over time   %s\n", r.Bars(60))
	if r.Failed > 0 {
		c.printf("  failed      %d requests were refused when this was recorded; it is not known what they would have become, and they are not played\n", r.Failed)
	}
	earlier := fmt.Sprintf("(%s of what was live before it is known, and counted)", size.Of(r.Earlier))
	switch {
	case r.Uncertain:
		c.printf("  not sure    a process's history lacks some of its program: more may be needed %s, or less where many streams lost frees; a log (Config.LogSinks) has all\n", earlier)
	case r.LowerBounds:
		c.printf("  at least    the history lacks some of its program: more may be needed %s\n", earlier)
	}
	if j := r.Jobs; j != nil {
		printJobs(c, j)
	}
}

// between is an interval of bytes, or its one value.
func between(least, most uint64) string {
	if least == most {
		return fmt.Sprintf("%d bytes (%s)", most, fit.Size(most))
	}
	return fmt.Sprintf("%d to %d bytes (%s to %s)", least, most, fit.Size(least), fit.Size(most))
}

// orNone is a text with a size, or nothing for 0 bytes.
func orNone(bytes uint64, text string) string {
	if bytes == 0 {
		return ""
	}
	return fmt.Sprintf(text, fit.Size(bytes))
}

// heldOn says under which limit the peaks are, if that is not the memory that was asked about.
func heldOn(r *fit.Report) string {
	switch {
	case r.Memory > 0:
		return ""
	case r.Jobs != nil && r.Jobs.AtOnce > 0:
		return " under a limit of what is needed"
	}
	return " without a limit"
}

// guardLine says which guard the figures are with.
func guardLine(r *fit.Report) string {
	switch r.Guard {
	case fit.Recorded:
		return "none but the padding that the recording has; --guard sample plays the default guard"
	case fit.RecordedSample:
		return "the recording's, which chose blocks by chance: it may choose others, and at any rate"
	}
	return r.Guard
}

func printJobs(c *console, j *fit.Jobs) {
	c.printf("  jobs        %d behind an admission by their peaks, at most %d at once, of %s with %s set aside for what is no job's\n", j.Count, j.Most, size.Of(j.Reserved+j.Others), size.Of(j.Others))
	c.printf("              %d would be refused, %d would wait: p50 %v, p99 %v, most %v\n", j.Refused, j.Waited, j.WaitP50, j.WaitP99, j.WaitMax)
	c.printf("              none is refused from %s on, none waits for memory from %s on\n", size.Of(j.NeedsForAny),
		size.Of(j.NeedsForAll))
}
