package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/internal/audit"
	"github.com/fencepost-gpu/fencepost/internal/size"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
	"github.com/fencepost-gpu/fencepost/internal/traceio/replay"
)

type replayFlags struct {
	device, resource, budget, guard string
	speed                           float64
	bounds                          limitFlags
	json                            bool
}

func replayCommand(c *console, code *int) *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay FILE...",
		Short: "Play recorded allocation traces through the stack",
		Long: `Replay plays allocation traces through the stack, in the order and on the
streams of the recording: the CSV of RMM's logging adaptor, plain or gzipped,
and the JSON lines of Fencepost's own log. Each file gets a stack of its own
and is checked whole before any of it is played. Rows of more than 64 KiB are
skipped, and it says how many. Of a file that ends in the middle of a row, as a
crash leaves it, the whole rows are played, and it says so. If the beginning is
missing, it says that the sizes are lower bounds.

Exit codes: 0 clean; 1 refusals, findings, or books that differ from
the driver's; 2 a file or flag is bad; 130 Ctrl-C.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			cfg, err := f.config()
			if err != nil {
				return err
			}
			limits, err := f.bounds.limits()
			if err != nil {
				return err
			}
			c.jsonOnly = f.json
			*code, err = replayFiles(cmd.Context(), c, files, playing{cfg, f, limits})
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.device, "device", string(fencepost.Auto), "auto, cuda or sim")
	flags.StringVar(&f.resource, "resource", "", "async, pool or direct (default: pool where the device maps memory, else async)")
	flags.StringVar(&f.budget, "budget", "", "byte limit, such as 2GiB (default: the device's free memory)")
	flags.StringVar(&f.guard, "guard", "sample", "debug guard: off, ledger, sample[:BYTES] or hunt[:bisect+delay+unmap]")
	flags.Float64Var(&f.speed, "speed", 0, "how much faster than recorded, 0.001 to 1000000; 1 keeps the times, 0 does not wait")
	f.bounds.add(cmd)
	flags.BoolVar(&f.json, "json", false, "print one JSON object for each file on standard output, and the reports on standard error")
	return cmd
}

func (f replayFlags) config() (fencepost.Config, error) {
	cfg := fencepost.Config{Device: fencepost.DeviceKind(f.device), Resource: fencepost.Backend(f.resource), Guard: fencepost.GuardMode(f.guard), Streams: 256}
	if err := replay.CheckSpeed(f.speed); err != nil {
		return cfg, fmt.Errorf("--speed: %w", err)
	}
	var err error
	cfg.Budget, err = parseBudget(f.budget)
	return cfg, err
}

// playing is how files are played.
type playing struct {
	cfg    fencepost.Config
	flags  replayFlags
	limits alloctrace.Limits
}

// replayFiles plays each file and returns the worst exit code. A bad file
// does not keep the others from being played; the end of ctx does, and is the error.
func replayFiles(ctx context.Context, c *console, files []string, how playing) (worst int, err error) {
	for _, file := range files {
		code, err := replayFile(ctx, c, file, how)
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return code, &problemError{err}
		}
		if err != nil {
			c.complain(err)
		}
		worst = max(worst, code)
	}
	return worst, nil
}

func replayFile(ctx context.Context, c *console, file string, how playing) (int, error) {
	trace, err := how.limits.ReadFile(file)
	if err != nil {
		return exitBadInput, err
	}
	c.complainOf(file, trace.Passed)
	rt, err := fencepost.Open(ctx, how.cfg)
	if err != nil {
		return exitBadInput, err
	}
	wrong := audit.Count()
	defer wrong.Stop()
	report, err := replay.Play(ctx, trace, replay.Config{Runtime: rt.Core(), Streams: rt.Streams(), Pool: poolOf(rt, how.cfg), Speed: how.flags.speed,
		Draining: func() func() {
			return startLine(c, func() string {
				return fmt.Sprintf("all rows are played; waiting until the device has freed %s", size.Of(rt.Stats().Pending.Bytes))
			})
		}})
	left, closeErr := rt.Close(context.WithoutCancel(ctx))
	err = errors.Join(err, closeErr)
	for kind, n := range rt.Findings().Counts() {
		report.Findings[string(kind)] = n
	}
	report.RefusedUntruly, report.FirstUntruth = wrong.Wrong()
	printReplay(c, report)
	if how.flags.json {
		err = errors.Join(err, c.printJSON(report))
	}
	if err != nil || len(left.Leaks) > 0 || !report.Clean() {
		return exitProblem, err
	}
	return exitClean, nil
}

// poolOf is the books of a pool, which only stream-ordered backends have.
func poolOf(rt *fencepost.Runtime, cfg fencepost.Config) replay.Pool {
	if cfg.Resource == fencepost.Direct {
		return nil
	}
	return rt
}

// shownRows is how many rows of a kind are printed.
const shownRows = 10

// printReplay writes the report for people.
func printReplay(c *console, r *replay.Report) {
	c.printf("%s (%s) through %s\n", r.File, r.Format, r.Resource)
	c.printf("  events         %d: %d allocations, %d frees, %d recorded failures, %d without memory, in %.2fs, %.2fs of that after the last row\n",
		r.Events, r.Allocations, r.Frees, r.RecordedFailures, r.Empty, r.Seconds, r.DrainSeconds)
	c.printf("  requested      peak live %d bytes (%s), end live %d bytes in %d blocks\n", r.PeakLive,
		size.Of(r.PeakLive), r.EndLive, r.LeftLiveBlocks)
	c.printf("  device         peak reserved %d bytes (%s); %s\n", r.PeakReserved, size.Of(r.PeakReserved),
		agreement(r.Drift))
	for _, op := range slices.Sorted(maps.Keys(r.Latency)) {
		l := r.Latency[op]
		c.printf("  %-14s %d: p50 %v, p90 %v, p99 %v, max %v\n", op, l.Count,
			time.Duration(l.P50), time.Duration(l.P90), time.Duration(l.P99), time.Duration(l.Max))
	}
	if r.TooLong > 0 {
		c.printf("  too long       %d rows were skipped, the first in line %d\n", r.TooLong, r.FirstTooLong)
	}
	if r.Cut > 0 {
		c.printf("  cut            the file ends in the middle of line %d, which was left out\n", r.Cut)
	}
	if r.LowerBounds {
		c.printf("  lower bounds   the file lacks some of its program: %d blocks of %d bytes that it frees are from before it, and %d records are missing; more may have been live and reserved than these sizes say\n",
			r.EarlierBlocks, r.EarlierBytes, r.Missing)
	}
	for i, f := range r.Failures {
		if i == shownRows {
			c.printf("                 ... and %d more\n", r.RecordedFailures-shownRows)
			break
		}
		c.printf("  failed then    %s\n", f.Text)
	}
	if r.Refusals > 0 {
		c.printf("  refusals       %d, with %d frees of refused blocks not played; the first: %s\n", r.Refusals, r.RefusedFrees, r.FirstRefusal)
	}
	if r.RefusedUntruly > 0 {
		c.printf("  untrue         %d refusals contradict themselves; the first: %s\n", r.RefusedUntruly, r.FirstUntruth)
	}
	if r.UnknownFrees > 0 {
		c.printf("  unknown frees  %d: rows that free a pointer which was not live\n", r.UnknownFrees)
	}
	if r.Repeated > 0 {
		c.printf("  repeated       %d: rows that allocate at a pointer which was live; the row of its free is missing\n", r.Repeated)
	}
	for i, l := range r.LeftLive {
		if i == shownRows {
			c.printf("                 ... and %d more\n", r.LeftLiveBlocks-shownRows)
			break
		}
		c.printf("  left live      %d bytes on stream %d, allocated in line %d\n", l.Bytes, l.Stream, l.Line)
	}
	for _, kind := range slices.Sorted(maps.Keys(r.Findings)) {
		c.printf("  finding        %s: %d\n", kind, r.Findings[kind])
	}
}
