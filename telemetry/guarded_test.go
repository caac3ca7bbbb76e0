package telemetry_test

import (
	"testing"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// brokenProvider panics when it is asked for a tracer.
type brokenProvider struct{ noop.TracerProvider }

func (brokenProvider) Tracer(string, ...trace.TracerOption) trace.Tracer { panic("the program's bug") }

func TestAProviderThatPanicsCostsItsSpansAlone(t *testing.T) {
	r := must.Get(telemetry.NewResource(coretest.NewFake(0), telemetry.Config{TracerProvider: brokenProvider{}}))(t)
	block := must.Get(r.Allocate(t.Context(), core.Request{Bytes: 64, Tag: "rows"}))(t)
	must.Get(r.Deallocate(t.Context(), block.ID))(t)
	findings := telemetry.NewFindings(telemetry.FindingsConfig{TracerProvider: brokenProvider{}})
	findings.Report(core.Finding{Kind: names.FindingLeak, Victim: block})
	if findings.Total() != 1 {
		t.Errorf("%d findings of one", findings.Total())
	}
}
