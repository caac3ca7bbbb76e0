package main

import (
	"maps"
	"slices"

	"github.com/fencepost-gpu/fencepost/cmd/fencepost/internal/demo"
	"github.com/fencepost-gpu/fencepost/internal/terminal"
)

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
		terminal.Size(r.Bytes.PeakRequested), terminal.Size(r.Bytes.Peak), terminal.Size(r.Bytes.PeakReserved), terminal.Size(r.Bytes.End), terminal.Size(r.Bytes.Budget))
	c.printf("  launches      %d, %d of them (%.0f%%) over a block that another stream wrote last\n",
		r.Launches, r.CrossStreamLaunches, percent(r.CrossStreamLaunches, r.Launches))
	c.printf("  waits         %d queued, %d not needed\n", r.WaitsQueued, r.WaitsElided)
	c.printf("  results       %d compared with the CPU's, %d wrong\n", r.Results, r.Wrong)
	c.printf("  traces        replayed %d times\n", r.TracesReplayed)
	c.printf("  spans         %d started, %d ended, %d dropped\n", r.SpansStarted, r.SpansEnded, r.SpansDropped)
	c.printf("  refused       %d requests\n", r.Refused)
	c.printf("  leaked        %d blocks; the books differ from the pool's by %d bytes\n", r.Leaked, r.DriftBytes)
	g := r.Guarding
	c.printf("  guard         %s: %d blocks guarded, %d without for want of memory; %d comparisons, %d left out\n",
		g.Mode, g.Guarded, g.Unguarded, g.Verified, g.Unchecked)
	c.printf("  quarantine    at most %s seen in it; %d blocks let go, %d refusals cured by that\n",
		terminal.Size(g.QuarantinePeak), g.Evicted, g.Relieved)
	printFindings(c, r)
	for _, e := range r.Errors {
		c.printf("  error         %s\n", e)
	}
	printVerdict(c, r)
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
		c.printf("\nNOT clean\n")
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
