package runtimes_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
)

// lines is a log that is read while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSpace(l.text.String()), "\n")
}

// plantOverrun writes 16 bytes behind a block that is then freed, and leaves the
// device idle. If deferred, the block is freed before its launch has ended.
func plantOverrun(t *testing.T, rt *fencepost.Runtime, deferred bool) {
	t.Helper()
	s := e2e.Lease(t, rt, "s")
	b := e2e.Allocate(t, rt, 1000, s.ID(), "victim")
	e2e.Succeed(t, "launch", rt.LaunchNamed(t.Context(), "off_by_one", s.ID(), []core.Use{{Block: b.ID, Access: core.Write}}, func(context.Context) error {
		if deferred {
			e2e.Free(t, rt, b)
		}
		return rt.Driver().MemsetAsync(b.ID.Ptr, 7, b.Requested+16, s.Handle())
	}))
	if !deferred {
		e2e.Free(t, rt, b)
	}
	e2e.Succeed(t, "release", s.Release())
}

// A service that is idle learns of the damage that was done before it was, in
// the metrics, the log, the callback and the probes, without another call.
func TestAnIdleServiceIsToldWhatItsGuardFinds(t *testing.T) {
	for _, guard := range []string{"sample:1", "hunt", "hunt:bisect", "hunt:delay", "hunt:unmap"} {
		for _, deferred := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s deferred=%v", guard, deferred), func(t *testing.T) {
				t.Parallel()
				found := make(chan core.Finding, 8)
				log := &lines{}
				cfg := fencepost.Config{Guard: fencepost.GuardMode(guard), OnFinding: func(f core.Finding) { found <- f }, GuardConfig: debugguard.Config{QuarantineAge: 50 * time.Millisecond}}
				cfg.Findings.Logger = slog.New(slog.NewJSONHandler(log, nil))
				rt := e2e.OpenDirty(t, cfg)
				plantOverrun(t, rt, deferred)
				select {
				case f := <-found:
					if f.Kind != names.FindingOutOfBoundsWrite || f.Victim.Tag != "victim" {
						t.Errorf("found %v", f)
					}
				case <-time.After(time.Minute):
					t.Fatalf("nothing was found: %+v", rt.Guard().GuardStats())
				}
				e2e.Becomes(t, rt, names.HealthDegraded, names.HealthFindings)
				e2e.Probes(t, rt, 200, 200, "degraded")
				if n := rt.Findings().Counts()[names.FindingOutOfBoundsWrite]; n != 1 {
					t.Errorf("it is counted %d times", n)
				}
				if !slices.ContainsFunc(log.all(), func(line string) bool {
					var r struct{ Kind, Tag string }
					return json.Unmarshal([]byte(line), &r) == nil && r.Kind == "oob-write" && r.Tag == "victim"
				}) {
					t.Errorf("the log says nothing of it: %q", log.all())
				}
			})
		}
	}
}

// Nothing is done in the background where nothing is to call the device there.
func TestWithoutAReaperTheGuardLeavesTheDeviceAlone(t *testing.T) {
	cfg := fencepost.Config{Guard: "hunt", GuardConfig: debugguard.Config{QuarantineAge: time.Millisecond}}
	cfg.Async.ReapInterval, cfg.Pool.ReapInterval = -1, -1
	rt := e2e.OpenDirty(t, cfg)
	plantOverrun(t, rt, false)
	time.Sleep(100 * time.Millisecond)
	if g := rt.Guard().GuardStats(); g.Quarantine.Blocks == 0 || g.Findings != 0 {
		t.Errorf("somebody was at work: %+v", g)
	}
}
