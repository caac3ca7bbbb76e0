package telemetry_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// newProbed is a traced resource over a probe over a fake.
func newProbed(t testing.TB, cfg telemetry.Config, options ...sdktrace.TracerProviderOption) traced {
	t.Helper()
	r := newTraced(t, cfg, options...)
	probe := must.Get(telemetry.NewProbe(r.fake, telemetry.LayerDriver, r.provider))(t)
	cfg.TracerProvider = r.provider
	r.Resource = must.Get(telemetry.NewResource(probe, cfg))(t)
	return r
}

func TestGoldenLayersOfALife(t *testing.T) {
	r := newProbed(t, telemetry.Config{})
	ctx := r.request(t)
	b := must.Get(r.Allocate(ctx, core.Request{Bytes: 64, Stream: 1}))(t)
	must.Do(t, r.FinishUse(t.Context(), must.Get(r.PrepareUse(ctx, core.UseRequest{Stream: 1, Uses: uses(core.Read, b)}))(t)))
	r.fake.FailNext("AbortUse", errors.New("no"))
	if r.AbortUse(ctx, must.Get(r.PrepareUse(ctx, core.UseRequest{Stream: 1, Uses: uses(core.Read, b)}))(t)) == nil {
		t.Fatal("the scripted failure was lost")
	}
	must.Get(r.Deallocate(ctx, b.ID))(t)
	var got []string
	for _, line := range render(r.recorder.Ended()) {
		if strings.HasPrefix(line, "layer/") {
			got = append(got, line)
		}
	}
	const layer = " cuda.device.index=0 layer.name=driver layer.operation="
	want := []string{
		"layer/1 driver in alloc/1" + layer + "allocate", "layer/2 driver in launch/1" + layer + "prepare", "layer/3 driver in launch/1" + layer + "finish",
		"layer/4 driver in launch/2" + layer + "prepare", "layer/5 driver in launch/2" + layer + "abort error.type=_OTHER Error(no)", "layer/6 driver in dealloc/1" + layer + "deallocate",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// wrapper is a layer that wraps the context of its caller, as one with a deadline of
// its own does.
type wrapper struct {
	core.Resource
	wrap func(context.Context) context.Context
}

func (w wrapper) Allocate(ctx context.Context, req core.Request) (core.Block, error) {
	return w.Resource.Allocate(w.wrap(ctx), req)
}

func TestALayerThatWrapsTheContextHidesNoLayer(t *testing.T) {
	type key struct{}
	for name, wrap := range map[string]func(context.Context) context.Context{
		"value": func(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, 1) },
		"timeout": func(ctx context.Context) context.Context {
			ctx, cancel := context.WithTimeout(ctx, time.Hour)
			t.Cleanup(cancel)
			return ctx
		},
	} {
		r := newTraced(t, telemetry.Config{})
		inner := must.Get(telemetry.NewProbe(r.fake, telemetry.LayerDriver, r.provider))(t)
		outer := must.Get(telemetry.NewProbe(wrapper{inner, wrap}, telemetry.LayerBudget, r.provider))(t)
		observed := must.Get(telemetry.NewResource(outer, telemetry.Config{TracerProvider: r.provider}))(t)
		must.Get(observed.Allocate(r.request(t), core.Request{Bytes: 64, Stream: 1}))(t)
		var got []string
		for _, line := range render(r.recorder.Ended()) {
			got = append(got, strings.Join(strings.Fields(line)[:4], " "))
		}
		if want := []string{"layer/1 driver in layer/2", "layer/2 budget in alloc/1", "alloc/1 in caller cuda.device.index=0"}; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// A call that belongs to no traced operation shows in no layer.
func TestLayersFollowOperations(t *testing.T) {
	r := newProbed(t, telemetry.Config{})
	life(unsampled(t.Context()), t, r)
	must.Do(t, r.ReapPending(r.request(t)))
	must.Do(t, r.Drain(r.request(t)))
	r.wantSpans(t)
	launches := newProbed(t, telemetry.Config{Level: telemetry.LevelLaunches})
	life(launches.request(t), t, launches)
	for _, line := range render(launches.recorder.Ended()) {
		if strings.HasPrefix(line, "layer/") && !strings.Contains(line, " in launch/") {
			t.Errorf("at the level of launches: %s", line)
		}
	}
	mute := must.Get(telemetry.NewProbe(newFencing(), telemetry.LayerDriver, nil))(t)
	life(launches.request(t), t, must.Get(telemetry.NewResource(mute, telemetry.Config{TracerProvider: provider(sdktrace.AlwaysSample())}))(t))
	if n := len(launches.recorder.Ended()); n != 6 {
		t.Errorf("%d spans, want two launches and their prepares and finishes in the layer", n)
	}
}

func TestAnUnsampledProbeAllocatesNothing(t *testing.T) {
	r := newProbed(t, telemetry.Config{})
	probe := must.Get(telemetry.NewProbe(newNothing(), telemetry.LayerDriver, r.provider))(t)
	observed := must.Get(telemetry.NewResource(probe, telemetry.Config{TracerProvider: r.provider}))(t)
	ctx := unsampled(t.Context())
	if n := allocs(t, func() error { _, err := observed.Allocate(ctx, core.Request{Bytes: 64}); return err }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestNewProbeRefusesWhatIsMissing(t *testing.T) {
	provider := sdktrace.NewTracerProvider()
	for name, call := range map[string]func() (*telemetry.Probe, error){
		"upstream": func() (*telemetry.Probe, error) { return telemetry.NewProbe(nil, telemetry.LayerLog, provider) },
		"name":     func() (*telemetry.Probe, error) { return telemetry.NewProbe(newFencing(), "", provider) },
	} {
		var bad *core.InvalidRequestError
		if p, err := call(); p != nil || !errors.As(err, &bad) || bad.Field != name {
			t.Errorf("%s: got %v, %v", name, p, err)
		}
	}
}
