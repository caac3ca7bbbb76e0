package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/internal/replay"
)

// printReplay writes the report for people.
func printReplay(r *replay.Report) {
	out := os.Stdout
	fmt.Fprintf(out, "%s (%s) through %s\n", r.File, r.Format, r.Resource)
	fmt.Fprintf(out, "  events         %d: %d allocations, %d frees, %d recorded failures, %d without memory, in %.2fs\n",
		r.Events, r.Allocations, r.Frees, r.RecordedFailures, r.Empty, r.Seconds)
	fmt.Fprintf(out, "  requested      peak live %d bytes (%s), end live %d bytes in %d blocks\n", r.PeakLive, fencepost.FormatBytes(r.PeakLive), r.EndLive, r.LeftLiveBlocks)
	fmt.Fprintf(out, "  device         peak reserved %d bytes (%s), drift %d bytes\n", r.PeakReserved, fencepost.FormatBytes(r.PeakReserved), r.Drift)
	for _, op := range slices.Sorted(maps.Keys(r.Latency)) {
		l := r.Latency[op]
		fmt.Fprintf(out, "  %-14s %d: p50 %v, p90 %v, p99 %v, max %v\n", op, l.Count,
			time.Duration(l.P50), time.Duration(l.P90), time.Duration(l.P99), time.Duration(l.Max))
	}
	if r.Refusals > 0 {
		fmt.Fprintf(out, "  refusals       %d, with %d frees of refused blocks not played; the first: %s\n", r.Refusals, r.RefusedFrees, r.FirstRefusal)
	}
	if r.UnknownFrees > 0 {
		fmt.Fprintf(out, "  unknown frees  %d: rows that free a pointer which was not live\n", r.UnknownFrees)
	}
	if r.Repeated > 0 {
		fmt.Fprintf(out, "  repeated       %d: rows that allocate at a pointer which was live; the row of its free is missing\n", r.Repeated)
	}
	for i, l := range r.LeftLive {
		if i == 10 {
			fmt.Fprintf(out, "                 ... and %d more\n", r.LeftLiveBlocks-10)
			break
		}
		fmt.Fprintf(out, "  left live      %d bytes on stream %d, allocated in line %d\n", l.Bytes, l.Stream, l.Line)
	}
	for _, kind := range slices.Sorted(maps.Keys(r.Findings)) {
		fmt.Fprintf(out, "  finding        %s: %d\n", kind, r.Findings[kind])
	}
}
