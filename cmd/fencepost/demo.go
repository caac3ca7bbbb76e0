package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cmd/fencepost/internal/demo"
	"github.com/fencepost-gpu/fencepost/internal/size"
	"github.com/fencepost-gpu/fencepost/internal/terminal"
)

type demoFlags struct {
	device, guard, inject, listen, spans string
	budget, incidents, policy            string
	duration                             time.Duration
	sample                               float64
	json                                 bool
}

func demoCommand(c *console, code *int) *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run the whole stack on real traces and on a sort and hash join",
		Long: `Demo opens the whole stack and runs two workloads side by side: recorded
allocation traces, and a radix sort and hash join of 8 goroutines over 16
streams, each result compared with the CPU's.

With --inject a real bug is planted in the work, and the report says whether
the runtime saw it. Kinds: ` + strings.Join(demo.Kinds(), ", ") + `.
On a GPU a missing fence, a use before the allocation is ready, a read past the
end and a read after the free are not seen: the oracle that sees them is the
simulated device's. With --guard=hunt:unmap a read after the free is seen.

Spans go to --spans FILE as JSON lines, which takes the place of what was there
when the demo has ended, and to a collector if the standard
OTEL_EXPORTER_OTLP_ENDPOINT variables name one. Metrics are pushed, too, if
OTEL_METRICS_EXPORTER=otlp or OTEL_EXPORTER_OTLP_METRICS_ENDPOINT says so.

While it runs, "fencepost guard" shows and switches its debug guard. With
--incidents each finding is a file there, which "fencepost incident" prints, and
the live view hands out on a loopback address.

Ctrl-C ends it before its time, with the report and the exit code of that.

Exit codes: 0 clean; 1 something was wrong or found; 2 a bad flag; 3 a planted
bug was not seen; 70 stopped by --guard-policy=stop.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			*code, err = runDemo(cmd.Context(), c, f)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.device, "device", string(fencepost.Auto), "auto, cuda or sim")
	flags.DurationVar(&f.duration, "for", 20*time.Second, "how long to run")
	flags.StringVar(&f.guard, "guard", "sample:65536", "debug guard: off, ledger, sample[:BYTES] or hunt[:bisect+delay+unmap]")
	flags.StringVar(&f.policy, "guard-policy", string(fencepost.PolicyReport), "what follows a finding: report, refuse or stop")
	flags.StringVar(&f.incidents, "incidents", "", "write each finding into this folder as a JSON file, and dump the history there")
	flags.StringVar(&f.budget, "budget", "", "byte limit, such as 8GiB (default: the device's free memory)")
	flags.StringVar(&f.inject, "inject", "", "plant a bug of this kind")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:9464", "address for the live view, metrics, health and the guard; empty for none")
	flags.StringVar(&f.spans, "spans", "", "write spans to this file as JSON lines")
	flags.Float64Var(&f.sample, "sample", 0.01, "share of traces that are sampled, unless OTEL_TRACES_SAMPLER says otherwise")
	flags.BoolVar(&f.json, "json", false, "print the report as one JSON object on standard output, and the text on standard error")
	return cmd
}

func (f demoFlags) config() (fencepost.Config, error) {
	cfg := fencepost.Config{Device: fencepost.DeviceKind(f.device), Guard: fencepost.GuardMode(f.guard), GuardPolicy: fencepost.GuardPolicy(f.policy), Incidents: f.incidents, Streams: demo.Streams}
	if f.duration <= 0 {
		return cfg, fmt.Errorf("--for %v: say more than 0", f.duration)
	}
	if !(f.sample >= 0 && f.sample <= 1) { // NaN is neither
		return cfg, fmt.Errorf("--sample %v: say 0 to 1", f.sample)
	}
	var err error
	cfg.Budget, err = parseBudget(f.budget)
	return cfg, err
}

func runDemo(ctx context.Context, c *console, f demoFlags) (code int, err error) {
	cfg, err := f.config()
	if err != nil {
		return exitBadInput, err
	}
	c.jsonOnly = f.json
	var plant *demo.Plant
	if f.inject != "" {
		if plant, err = demo.NewPlant(f.inject); err != nil {
			return exitBadInput, err
		}
		cfg.OnFinding = plant.Watch
	}
	spans, err := openSpans(ctx, f.spans, f.sample)
	if err != nil {
		return exitBadInput, err
	}
	cfg.TracerProvider, cfg.TelemetryLost = spans.tracers(), spans.lost
	rt, err := fencepost.Open(ctx, cfg)
	if err != nil {
		return exitBadInput, errors.Join(err, spans.discard(ctx))
	}
	if p, err := rt.Driver().Properties(); err == nil {
		spans.pipe.IdentifyGPU(p.UUID)
	}
	d, err := demo.New(rt, spans.beginRequest, plant)
	if err != nil {
		_, closeErr := rt.Close(ctx)
		return exitBadInput, errors.Join(err, closeErr, spans.discard(ctx))
	}
	server, err := serve(ctx, f.listen, rt, spans)
	if err != nil {
		_, closeErr := rt.Close(ctx)
		return exitBadInput, errors.Join(err, closeErr, spans.discard(ctx))
	}
	defer server.close()
	return showDemo(ctx, c, f, rt, d, spans, server)
}

func showDemo(ctx context.Context, c *console, f demoFlags, rt *fencepost.Runtime, d *demo.Demo, spans *spanPipe, server *server) (int, error) {
	c.printf("device: %v\n", rt.DeviceChoice())
	c.printf("freed memory serves its stream again before the device is done with it, so more can wait for the device than it has\n")
	if server.url != "" {
		c.printf("metrics on %s/metrics, health on %s/healthz, the live view on %s/debug/gpumem/\n", server.url, server.url, server.url)
	}
	stopProgress := startProgress(c, rt, spans)
	runCtx, cancel := context.WithTimeout(ctx, f.duration)
	runErr := d.Run(runCtx)
	cancel()
	stopProgress()
	ctx = context.WithoutCancel(ctx)
	measureErr := d.Measure(ctx)
	left, closeErr := rt.Close(ctx)
	closeErr = errors.Join(measureErr, closeErr, server.stopPushing(ctx), spans.close(ctx))
	report := d.Finish(left, spans.pipe.Counts(), runErr, closeErr)
	printDemo(c, report)
	if f.json {
		if err := c.printJSON(report); err != nil {
			return exitProblem, &problemError{err}
		}
	}
	return verdict(report), nil
}

// verdict is the exit code for a report.
func verdict(r *demo.Report) int {
	switch {
	case r.Planted != nil && r.Planted.Found:
		return exitProblem
	case r.Planted != nil:
		return exitNotSeen
	case !r.Clean():
		return exitProblem
	}
	return exitClean
}

// shownFindings is how many findings are printed whole.
const shownFindings = 5

// printDemo writes the report for people.
func printDemo(c *console, r *demo.Report) {
	c.printf("\n%s, %.1fs, guard %s\n%s\n\n", r.Device, r.Seconds, r.Guard, r.Stack)
	c.printf("  operations   ")
	for _, op := range slices.Sorted(maps.Keys(r.Operations)) {
		if n := r.Operations[op]; n > 0 {
			c.printf(" %s %d", op, n)
		}
	}
	c.printf("\n  memory        peak %s requested, %s with guard, %s reserved; %s at the end; budget %s\n",
		size.Of(r.Bytes.PeakRequested), size.Of(r.Bytes.Peak), size.Of(r.Bytes.PeakReserved), size.Of(r.Bytes.End),
		size.Of(r.Bytes.Budget))
	c.printf("  launches      %d, of which %d (%.0f%%) use a block that another stream wrote last\n",
		r.Launches, r.CrossStreamLaunches, percent(r.CrossStreamLaunches, r.Launches))
	c.printf("  waits         %d queued, %d not needed\n", r.WaitsQueued, r.WaitsElided)
	c.printf("  results       %d compared with the CPU's, %d wrong\n", r.Results, r.Wrong)
	c.printf("  traces        replayed %d times\n", r.TracesReplayed)
	c.printf("  spans         %d started, %d ended, %d dropped\n", r.SpansStarted, r.SpansEnded, r.SpansDropped)
	c.printf("  refused       %d requests\n", r.Refused)
	if r.RefusedUntruly > 0 {
		c.printf("  untrue        %d refusals contradict themselves; the first: %s\n", r.RefusedUntruly, r.FirstUntruth)
	}
	c.printf("  leaked        %d blocks; %s\n", r.Leaked, agreement(r.DriftBytes))
	g := r.Guarding
	c.printf("  guard         %s: %d blocks guarded, %d skipped (out of memory); %d comparisons, %d skipped\n",
		g.Mode, g.Guarded, g.Unguarded, g.Verified, g.Unchecked)
	c.printf("  quarantine    held at most %s; %d blocks evicted, %d refusals avoided by evicting\n",
		size.Of(g.QuarantinePeak), g.Evicted, g.Relieved)
	printFindings(c, r)
	for _, e := range r.Errors {
		c.printf("  error         %s\n", e)
	}
	printVerdict(c, r)
	printDetails(c, r)
}

// agreement says whether the allocations that were counted are those that the pool holds.
func agreement(drift int64) string {
	if drift == 0 {
		return "books and pool agree"
	}
	return fmt.Sprintf("books and pool differ by %d bytes", drift)
}

func printFindings(c *console, r *demo.Report) {
	if len(r.Findings) == 0 {
		c.printf("  findings      none\n")
	}
	for _, kind := range slices.Sorted(maps.Keys(r.Findings)) {
		c.printf("  findings      %s: %d\n", kind, r.Findings[kind])
	}
	for _, file := range r.Incidents {
		c.printf("  incident      %s\n", file)
	}
}

// printDetails prints what findings say: a screen each, so the verdict comes before it.
func printDetails(c *console, r *demo.Report) {
	for i, d := range r.Details {
		if i == shownFindings {
			c.printf("\n... and %d more\n", len(r.Details)-i)
			break
		}
		c.printf("\n[%s] %s\n", d.Source, terminal.Lines(d.Full))
	}
}

func printVerdict(c *console, r *demo.Report) {
	switch p := r.Planted; {
	case p != nil && p.Found:
		c.printf("\nplanted %s (tag %q, generation #%d): found, %s\n", p.Kind, p.Tag, p.Generation, p.Why)
	case p != nil:
		c.printf("\nplanted %s (tag %q, generation #%d): NOT seen. %s\n", p.Kind, p.Tag, p.Generation, p.Why)
	case r.Clean():
		c.printf("\nclean: every result right, nothing leaked, nothing found\n")
	default:
		c.printf("\nNOT clean: %s\n", strings.Join(r.Faults(), "; "))
	}
	if r.Planted != nil && r.Planted.Refused != "" {
		c.printf("the runtime answered: %s\n", r.Planted.Refused)
	}
}

func percent(part, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * float64(part) / float64(whole)
}
