package browser

import (
	"context"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

// The page draws what the device did by stream, and says which request waited for which.
func TestThePageShowsWhatTheDeviceDid(t *testing.T) {
	provider := sdktrace.NewTracerProvider()
	s := newScene(t, func(cfg *fencepost.Config, _ *fencepost.HandlerConfig) {
		cfg.TracerProvider, cfg.Guard = provider, "off"
	})
	index := s.alloc("index.postings", mib)
	other, err := s.rt.Streams().Acquire(t.Context(), "query")
	must(t, err)
	t.Cleanup(func() { _ = other.Release() })
	request := func(name string, on *cuda.Lease, access core.Access) {
		ctx, span := provider.Tracer("test").Start(t.Context(), name, trace.WithNewRoot())
		defer span.End()
		must(t, s.rt.LaunchNamed(ctx, name, on.ID(), []core.Use{{Block: index.ID, Access: access}}, func(context.Context) error { return nil }))
	}
	p := openTab(t, s.live(), desk)
	p.contains("#timeline-note", "no launch was timed")
	release, err := s.rt.Driver().(*sim.Device).Hold(s.stream.Handle())
	must(t, err)
	request("merge", s.stream, core.Write)
	request("query", other, core.Read)
	time.Sleep(60 * time.Millisecond)
	release()
	p.contains("#held-up", `waited for launch`)
	p.contains("#held-up", `"merge" of request`)
	p.contains("#held-up", `block "index.postings"`)
	p.until("a bar of the wait, with its sentence", `document.querySelector("#timeline i.held")?.title.includes('for launch')`)
	p.until("the wait to be drawn as long as it was", `document.querySelector("#timeline i.held").getBoundingClientRect().width > 2`)
	p.do("choosing it", chromedp.Click("#timeline i.held"))
	p.contains("#timeline-work", "it writes what")
	p.contains("#timeline-work", "stream "+other.ID().String()+",")
	p.contains("#timeline-work", "trace ")
}
