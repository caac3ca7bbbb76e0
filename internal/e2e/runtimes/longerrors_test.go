package runtimes_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/legible"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// longTexts is a log sink, and a layer, of a program whose errors repeat what its clients sent.
type longTexts struct {
	core.Resource
	text    string
	longest int
}

func (l *longTexts) sees(err error) {
	if err != nil {
		l.longest = max(l.longest, len(err.Error()))
	}
}

func (l *longTexts) Put(r logging.Record)        { l.sees(r.Event.Err) }
func (l *longTexts) Flush(context.Context) error { return nil }
func (l *longTexts) Close(context.Context) error { return nil }
func (l *longTexts) Dropped() uint64             { return 0 }

func (l *longTexts) Unwrap() core.Resource { return l.Resource }
func (l *longTexts) String() string        { return "long" }

func (l *longTexts) Allocate(ctx context.Context, r core.Request) (core.Block, error) {
	if r.Tag == "refused" {
		return core.Block{}, fmt.Errorf("%s: %w", l.text, core.ErrOutOfMemory)
	}
	return l.Resource.Allocate(ctx, r)
}

// The program's errors and panics have texts of any length. Callers get them whole; logs, history,
// spans, findings and incident files keep a part.
func TestLongTextsOfErrorsAreKeptInPart(t *testing.T) {
	text := strings.Repeat("x", 1<<20)
	seen := &longTexts{text: text}
	exporter := tracetest.NewInMemoryExporter()
	incidents := t.TempDir()
	rt := e2e.OpenDirty(t, fencepost.Config{LogSinks: []logging.Sink{seen}, LogLevel: logging.Uses, Incidents: incidents,
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)), TraceLevel: telemetry.LevelOperations,
		Layers: fencepost.Layers{AroundBudget: []core.Layer{func(up core.Resource) (core.Resource, error) {
			return &longTexts{Resource: up, text: text}, nil
		}}}})
	own := fmt.Errorf("%s: %w", text, os.ErrNotExist)
	whole := func(what string, err, is error) {
		t.Helper()
		if !errors.Is(err, is) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: the caller gets %.80v", what, err)
		}
	}
	whole("a job", rt.Do(t.Context(), "job", func(*fencepost.Job) error { return own }), own)
	whole("a launch", rt.LaunchNamed(t.Context(), "launch", core.DefaultStream, nil,
		func(context.Context) error { return own }), own)
	_, err := rt.Allocate(t.Context(), core.Request{Bytes: 4096, Tag: "refused"})
	whole("a layer", err, core.ErrOutOfMemory)
	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(own)
	_ = rt.Do(cancelled, "cancelled", func(*fencepost.Job) error { return own }, fencepost.Admit())
	m, err := rt.Load("long", nil, sim.Kernel{Name: "panics", Run: func(*sim.Exec) { panic(text) }})
	e2e.Succeed(t, "loading", err)
	k, err := m.Kernel("panics")
	e2e.Succeed(t, "the kernel", err)
	_ = rt.Do(t.Context(), "panics", func(j *fencepost.Job) error {
		return e2e.ErrorOf(0, k.Launch(t.Context(), rt, j.Stream(), cuda.Blocks1D(1, 1), nil, driver.U32(1)))
	})
	_, _ = rt.Close(t.Context())

	const most = 8 << 10 // a text with what is around it: a stack, for one
	for _, r := range rt.History().Snapshot() {
		seen.sees(r.Event.Err)
	}
	if seen.longest == 0 || seen.longest > legible.MaxKept {
		t.Errorf("the log has an error of %d bytes", seen.longest)
	}
	for _, f := range rt.Findings().Recent() {
		if len(f.Text) > most || f.Err != nil && len(f.Err.Error()) > most {
			t.Errorf("a finding of %d bytes: %.80s", len(f.Text), f.Text)
		}
	}
	if h := rt.Health(); len(h.Reason) > most {
		t.Errorf("the health has %d bytes", len(h.Reason))
	}
	for _, s := range exporter.GetSpans() {
		if len(s.Status.Description) > most {
			t.Errorf("the span %s has a status of %d bytes", s.Name, len(s.Status.Description))
		}
	}
	files, _ := filepath.Glob(filepath.Join(incidents, "*"))
	for _, f := range files {
		if data, err := os.ReadFile(f); err != nil || strings.Contains(string(data), strings.Repeat("x", most)) {
			t.Errorf("the file %s: %v, %d bytes", f, err, len(data))
		}
	}
	if len(files) == 0 {
		t.Error("there is no incident")
	}
}
