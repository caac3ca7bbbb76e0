package main

import (
	"maps"
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost/internal/terminal"
	"github.com/fencepost-gpu/fencepost/internal/traceio/replay"
)

// printReplay writes the report for people.
func printReplay(c *console, r *replay.Report) {
	c.printf("%s (%s) through %s\n", r.File, r.Format, r.Resource)
	c.printf("  events         %d: %d allocations, %d frees, %d recorded failures, %d without memory, in %.2fs\n",
		r.Events, r.Allocations, r.Frees, r.RecordedFailures, r.Empty, r.Seconds)
	c.printf("  requested      peak live %d bytes (%s), end live %d bytes in %d blocks\n", r.PeakLive, terminal.Size(r.PeakLive), r.EndLive, r.LeftLiveBlocks)
	c.printf("  device         peak reserved %d bytes (%s); the books differ from the pool's by %d bytes\n", r.PeakReserved, terminal.Size(r.PeakReserved), r.Drift)
	for _, op := range slices.Sorted(maps.Keys(r.Latency)) {
		l := r.Latency[op]
		c.printf("  %-14s %d: p50 %v, p90 %v, p99 %v, max %v\n", op, l.Count,
			time.Duration(l.P50), time.Duration(l.P90), time.Duration(l.P99), time.Duration(l.Max))
	}
	if r.TooLong > 0 {
		c.printf("  too long       %d rows were skipped, the first in line %d\n", r.TooLong, r.FirstTooLong)
	}
	if r.Refusals > 0 {
		c.printf("  refusals       %d, with %d frees of refused blocks not played; the first: %s\n", r.Refusals, r.RefusedFrees, r.FirstRefusal)
	}
	if r.UnknownFrees > 0 {
		c.printf("  unknown frees  %d: rows that free a pointer which was not live\n", r.UnknownFrees)
	}
	if r.Repeated > 0 {
		c.printf("  repeated       %d: rows that allocate at a pointer which was live; the row of its free is missing\n", r.Repeated)
	}
	for i, l := range r.LeftLive {
		if i == 10 {
			c.printf("                 ... and %d more\n", r.LeftLiveBlocks-10)
			break
		}
		c.printf("  left live      %d bytes on stream %d, allocated in line %d\n", l.Bytes, l.Stream, l.Line)
	}
	for _, kind := range slices.Sorted(maps.Keys(r.Findings)) {
		c.printf("  finding        %s: %d\n", kind, r.Findings[kind])
	}
}
