package shown_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/names"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// longest is the longest run of one letter that may come out anywhere.
const longest = names.Max

// wordy goes through everything that takes a name, with long ones.
func wordy(t *testing.T, rt *fencepost.Runtime, tag core.Tag, launch string) {
	t.Helper()
	s := e2e.Lease(t, rt, tag)
	b := e2e.Allocate(t, rt, 1000, s.ID(), tag)
	uses := []core.Use{{Block: b.ID, Access: core.Write}}
	e2e.Succeed(t, "launch", rt.LaunchNamed(t.Context(), launch, s.ID(), uses, func(context.Context) error {
		return rt.Driver().MemsetAsync(b.ID.Ptr, 7, b.Requested+16, s.Handle())
	}))
	graph := must.Get(s.Capture(t.Context(), launch, uses, func(on driver.Stream) error { return rt.Driver().MemsetAsync(b.ID.Ptr, 7, 8, on) }))(t)
	e2e.Succeed(t, "launch of the graph", graph.Launch(t.Context(), rt, s))
	e2e.Succeed(t, "close of the graph", graph.Close())
	claim := must.Get(rt.Reserve(t.Context(), 1000, tag))(t)
	e2e.Succeed(t, "release of the claim", rt.ReleaseClaim(t.Context(), claim.ID))
	e2e.Free(t, rt, b)
	_, twice := rt.Deallocate(t.Context(), b.ID)
	late := rt.LaunchNamed(t.Context(), launch, s.ID(), uses, func(context.Context) error { return nil })
	_, refused := rt.Allocate(t.Context(), core.Request{Bytes: 1 << 40, Stream: s.ID(), Tag: tag})
	_, claimed := rt.Reserve(t.Context(), 1<<40, tag)
	if !errors.Is(twice, core.ErrUseAfterFree) || !errors.Is(late, core.ErrUseAfterFree) || !errors.Is(refused, core.ErrOutOfBudget) || !errors.Is(claimed, core.ErrOutOfBudget) {
		t.Fatalf("the refusals: %.200v, %.200v, %.200v, %.200v", twice, late, refused, claimed)
	}
	held := e2e.Allocate(t, rt, 3000, s.ID(), tag) // shown as live
	t.Cleanup(func() { _, _ = rt.Deallocate(context.Background(), held.ID) })
	e2e.Succeed(t, "drain", rt.Drain(t.Context()))
}

// everythingShown is what a runtime shows people, by the place.
func everythingShown(t *testing.T, rt *fencepost.Runtime, recorder *tracetest.SpanRecorder) map[string]string {
	t.Helper()
	handler := must.Get(fencepost.NewHandler(fencepost.HandlerConfig{Runtimes: []*fencepost.Runtime{rt}}))(t)
	shown := map[string]string{}
	for _, path := range []string{"/metrics", "/debug/gpumem/state", "/debug/gpumem/history", "/debug/gpumem/history?format=perfetto", "/debug/gpumem/history?format=pytorch", "/debug/gpumem/guard"} {
		answer := e2e.Request(handler, http.MethodGet, path, "")
		if answer.Code != http.StatusOK {
			t.Fatalf("%s: %d", path, answer.Code)
		}
		shown[path] = answer.Body.String()
	}
	for _, s := range recorder.Ended() {
		shown["spans"] += fmt.Sprintln(s.Name(), s.Attributes(), s.Events(), s.Status())
	}
	for _, f := range rt.Findings().Recent() {
		shown["findings"] += f.String() + "\n"
	}
	for _, s := range rt.Streams().Leases() {
		shown["leases"] += string(s.Tag)
	}
	e2e.Succeed(t, "flush", rt.Incidents().Flush(t.Context()))
	for _, path := range rt.Incidents().Files() {
		shown["incidents"] += e2e.Read(t, path)
	}
	return shown
}

func TestALongNameIsCutWhereverItShows(t *testing.T) {
	tag, launch := core.Tag(strings.Repeat("t", 70_000)), strings.Repeat("k", 70_000)
	for _, level := range []string{"off", "ledger", "sample", "hunt"} {
		t.Run(level, func(t *testing.T) {
			var lines, csv bytes.Buffer
			var text, found e2e.LockedText
			sinks := []logging.Sink{logging.NewJSONSink(&lines, logging.Queue{}), logging.NewCSVSink(&csv, logging.Queue{}),
				logging.NewSlogSink(slog.New(slog.NewTextHandler(&text, nil)), logging.Queue{})}
			cfg := fencepost.Config{Guard: fencepost.GuardMode(level), Budget: 64 << 20, LogLevel: logging.Uses, LogSinks: sinks, Incidents: filepath.Join(t.TempDir(), "i")}
			cfg.Findings.Logger = slog.New(slog.NewTextHandler(&found, nil))
			cfg.GuardConfig.HuntTags = []core.Tag{tag}
			rt, recorder := e2e.TracedRuntime(t, cfg)
			wordy(t, rt, tag, launch)
			shown := everythingShown(t, rt, recorder)
			for _, s := range sinks {
				e2e.Succeed(t, "close of a sink", s.Close(t.Context()))
			}
			shown["json lines"], shown["csv"], shown["slog"], shown["log of findings"] = lines.String(), csv.String(), text.String(), found.String()
			for place, text := range shown {
				if strings.Contains(text, strings.Repeat("t", longest)) || strings.Contains(text, strings.Repeat("k", longest)) {
					t.Errorf("%s has a name that is too long", place)
				}
				if place != "csv" && place != "leases" && !strings.Contains(text, strings.Repeat("t", 64)) && (level != "off" || !slices.Contains([]string{"findings", "incidents", "log of findings"}, place)) {
					t.Errorf("%s does not show the tag: the test sees nothing", place)
				}
			}
			if level == "sample" && rt.Guard().GuardStats().Guarded == 0 {
				t.Error("a long tag is not hunted under its name")
			}
		})
	}
}

func TestTwoLongTagsWithOneBeginningAreAccountedApart(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	s := e2e.Lease(t, rt, "s")
	long := strings.Repeat("t", 70_000)
	a, b := e2e.Allocate(t, rt, 1000, s.ID(), core.Tag(long+"a")), e2e.Allocate(t, rt, 1000, s.ID(), core.Tag(long+"b"))
	tags := map[core.Tag]bool{}
	for _, h := range rt.Budget().Holders() {
		tags[h.Tag] = true
	}
	if len(tags) != 2 || a.Tag == b.Tag {
		t.Errorf("%d tags hold memory: %v", len(tags), tags)
	}
	e2e.Free(t, rt, a, b)
}
