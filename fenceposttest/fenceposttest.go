// Package fenceposttest opens runtimes for the tests of a service. [Open] opens one on the
// simulated device. [Check] takes one that the service opened itself. At the end of the test both
// close the runtime and fail the test for each memory bug that was found; docs/testing.md shows it.
package fenceposttest

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
)

// Open opens a runtime for t and checks it at t's end, as [Check] does. If [fencepost.Open] fails,
// it ends t. Fields of cfg that are empty get these values, and the rest is as in
// [fencepost.Config]:
//
//   - Device: [fencepost.Sim]
//   - Guard: "hunt:bisect", which compares the bytes around every block after every launch
//   - CloseTimeout: 20 seconds
//
// Variables of the environment win, as ever: with FENCEPOST_DEVICE=cuda the same tests run on a
// GPU. Open blocks as [fencepost.Open] does. Call it in t's own goroutine.
func Open(t testing.TB, cfg fencepost.Config) *fencepost.Runtime {
	t.Helper()
	cfg.Device = cmp.Or(cfg.Device, fencepost.Sim)
	cfg.Guard = cmp.Or(cfg.Guard, fencepost.GuardHunt+":bisect")
	cfg.CloseTimeout = cmp.Or(cfg.CloseTimeout, 20*time.Second)
	rt, err := fencepost.Open(t.Context(), cfg)
	if err != nil {
		t.Fatalf("fencepost.Open: %v", err)
	}
	Check(t, rt)
	return rt
}

// Check closes rt at t's end, unless that is done, and reports with t.Errorf:
//
//   - the error of Close, such as a lease or a job that did not end in time
//   - what was never given back: blocks and open uses
//   - each finding, but those of the kinds that t expects, such as [names.FindingOutOfMemory] of a
//     device that lacks memory; a refusal by the budget is no finding
//
// Close has [fencepost.Config.CloseTimeout] for leases and jobs; leaks are told after a quarter of
// a second. Functions that t registers with Cleanup after Check run before it. Check itself does
// not block. Call it once for each runtime.
func Check(t testing.TB, rt *fencepost.Runtime, expected ...core.FindingKind) {
	t.Helper()
	t.Cleanup(func() {
		t.Helper()
		left, err := rt.Close(context.Background())
		if err != nil {
			t.Errorf("closing the runtime: %v", err)
		}
		if left.LeakedBytes > 0 || len(left.Leaks) > 0 || left.OpenIntents > 0 {
			t.Errorf("left over: %v", left)
		}
		counts := rt.Findings().Counts()
		delete(counts, names.FindingLeak) // Close has told of those
		for _, kind := range expected {
			delete(counts, kind)
		}
		for _, f := range rt.Findings().Recent() {
			if _, bad := counts[f.Kind]; bad {
				t.Errorf("found: %v", f)
				counts[f.Kind] = 0
			}
		}
		for kind, n := range counts {
			if n > 0 { // newer ones have taken their places
				t.Errorf("found %d times: %s; to see what, raise Findings.Keep of the runtime's Config", n, kind)
			}
		}
	})
}
