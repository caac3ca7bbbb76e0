package main

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/internal/demo"
)

// shownFindings is how many findings are printed whole.
const shownFindings = 5

// printDemo writes the report for people.
func printDemo(out io.Writer, r *demo.Report) {
	fmt.Fprintf(out, "\n%s, %.1fs, guard %s\n%s\n\n", r.Device, r.Seconds, r.Guard, r.Stack)
	fmt.Fprintf(out, "  operations   ")
	for _, op := range slices.Sorted(maps.Keys(r.Operations)) {
		if n := r.Operations[op]; n > 0 {
			fmt.Fprintf(out, " %s %d", op, n)
		}
	}
	fmt.Fprintf(out, "\n  memory        peak %s requested, %s with guard, %s reserved; %s at the end; budget %s\n",
		fencepost.FormatBytes(r.Bytes.PeakRequested), fencepost.FormatBytes(r.Bytes.Peak), fencepost.FormatBytes(r.Bytes.PeakReserved), fencepost.FormatBytes(r.Bytes.End), fencepost.FormatBytes(r.Bytes.Budget))
	fmt.Fprintf(out, "  launches      %d, %d of them (%.0f%%) over a block that another stream wrote last\n",
		r.Launches, r.CrossStreamLaunches, percent(r.CrossStreamLaunches, r.Launches))
	fmt.Fprintf(out, "  waits         %d queued, %d elided\n", r.WaitsQueued, r.WaitsElided)
	fmt.Fprintf(out, "  results       %d compared with the CPU's, %d wrong\n", r.Results, r.Wrong)
	fmt.Fprintf(out, "  traces        replayed %d times\n", r.TracesReplayed)
	fmt.Fprintf(out, "  spans         %d started, %d ended, %d dropped\n", r.SpansStarted, r.SpansEnded, r.SpansDropped)
	fmt.Fprintf(out, "  refused       %d requests\n", r.Refused)
	fmt.Fprintf(out, "  leaked        %d blocks, drift %d bytes\n", r.Leaked, r.DriftBytes)
	g := r.Guarding
	fmt.Fprintf(out, "  guard         %s: %d blocks guarded, %d without for want of memory; %d comparisons, %d left out\n",
		g.Mode, g.Guarded, g.Unguarded, g.Verified, g.Unchecked)
	fmt.Fprintf(out, "  quarantine    at most %s seen in it; %d blocks let go, %d refusals cured by that\n",
		fencepost.FormatBytes(g.QuarantinePeak), g.Evicted, g.Relieved)
	printFindings(out, r)
	for _, e := range r.Errors {
		fmt.Fprintf(out, "  error         %s\n", e)
	}
	printVerdict(out, r)
}

func printFindings(out io.Writer, r *demo.Report) {
	if len(r.Findings) == 0 {
		fmt.Fprintf(out, "  findings      none\n")
	}
	for _, kind := range slices.Sorted(maps.Keys(r.Findings)) {
		fmt.Fprintf(out, "  findings      %s: %d\n", kind, r.Findings[kind])
	}
	for _, file := range r.Incidents {
		fmt.Fprintf(out, "  incident      %s\n", file)
	}
	for i, d := range r.Details {
		if i == shownFindings {
			fmt.Fprintf(out, "\n... and %d more\n", len(r.Details)-i)
			break
		}
		fmt.Fprintf(out, "\n[%s] %s\n", d.Source, d.Full)
	}
}

func printVerdict(out io.Writer, r *demo.Report) {
	switch p := r.Planted; {
	case p != nil && p.Found:
		fmt.Fprintf(out, "\nplanted %s (tag %q, generation #%d): found, %s\n", p.Kind, p.Tag, p.Generation, p.Why)
	case p != nil:
		fmt.Fprintf(out, "\nplanted %s (tag %q, generation #%d): NOT seen. %s\n", p.Kind, p.Tag, p.Generation, p.Why)
	case r.Clean():
		fmt.Fprintf(out, "\nclean: every result right, nothing leaked, nothing found\n")
	default:
		fmt.Fprintf(out, "\nNOT clean\n")
	}
	if r.Planted != nil && r.Planted.Refused != "" {
		fmt.Fprintf(out, "the runtime answered: %s\n", r.Planted.Refused)
	}
}

func percent(part, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * float64(part) / float64(whole)
}
