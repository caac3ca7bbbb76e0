package browser

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
)

func TestMain(m *testing.M) {
	for _, entry := range os.Environ() { // they would change what is built
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "FENCEPOST_") && name != "FENCEPOST_CHROMIUM" && name != "FENCEPOST_REQUIRE" {
			_ = os.Unsetenv(name)
		}
	}
	_ = os.Setenv(libcuda.PathVariable, "no/libcuda.so.1")
	os.Exit(m.Run())
}

// scene is a runtime that is served and that a test plays with.
type scene struct {
	*testing.T
	rt     *fencepost.Runtime
	server *httptest.Server
	stream *cuda.Lease
}

const (
	mib = 1 << 20
	// hunted is the tag whose blocks are guarded on the device; the others are
	// hardly ever, so that little memory of the machine is touched.
	hunted core.Tag = "index.build"
)

func newScene(t *testing.T, change func(*fencepost.Config, *fencepost.HandlerConfig)) *scene {
	t.Helper()
	cfg, served := fencepost.Config{Device: fencepost.Sim, Budget: 4 << 30, Guard: "sample:68719476736"}, fencepost.HandlerConfig{}
	cfg.Sim.Name = "simulated"
	cfg.GuardConfig.HuntTags = []core.Tag{hunted}
	if change != nil {
		change(&cfg, &served)
	}
	rt, err := fencepost.Open(t.Context(), cfg)
	must(t, err)
	t.Cleanup(func() { _, _ = rt.Close(context.Background()) }) // some leave things behind on purpose
	served.Runtimes = append(served.Runtimes, rt)
	handler, err := fencepost.NewHandler(served)
	must(t, err)
	server := httptest.NewServer(handler)
	t.Cleanup(func() { server.Close(); http.DefaultClient.CloseIdleConnections() })
	stream, err := rt.Streams().Acquire(t.Context(), "scene")
	must(t, err)
	t.Cleanup(func() { _ = stream.Release() })
	return &scene{T: t, rt: rt, server: server, stream: stream}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// live is the address of the page.
func (s *scene) live() string { return s.server.URL + "/debug/gpumem/" }

func (s *scene) alloc(tag core.Tag, bytes uint64) core.Block {
	s.Helper()
	b, err := s.rt.Allocate(s.Context(), core.Request{Bytes: bytes, Stream: s.stream.ID(), Tag: tag})
	must(s.T, err)
	return b
}

func (s *scene) free(blocks ...core.Block) {
	s.Helper()
	for _, b := range blocks {
		_, err := s.rt.Deallocate(s.Context(), b.ID)
		must(s.T, err)
	}
}

// launch is a launch that writes a block on a stream; nothing is enqueued.
func (s *scene) launch(name string, on *cuda.Lease, access core.Access, blocks ...core.Block) {
	s.Helper()
	var uses []core.Use
	for _, b := range blocks {
		uses = append(uses, core.Use{Block: b.ID, Access: access})
	}
	must(s.T, s.rt.LaunchNamed(s.Context(), name, on.ID(), uses, func(context.Context) error { return nil }))
}

// overrun plants a write behind the end of a guarded block, and waits for it to
// be found.
func (s *scene) overrun(launch string) core.Block {
	s.Helper()
	b := s.alloc(hunted, 64<<10)
	must(s.T, s.rt.LaunchNamed(s.Context(), launch, s.stream.ID(), []core.Use{{Block: b.ID, Access: core.Write}}, func(context.Context) error {
		return s.rt.Driver().MemsetAsync(b.ID.Ptr, 7, b.Requested+16, s.stream.Handle())
	}))
	s.free(b)
	found := func(f core.Finding) bool { return f.Victim.ID.Generation == b.ID.Generation }
	for end := time.Now().Add(patience); !slices.ContainsFunc(s.rt.Findings().Recent(), found); time.Sleep(10 * time.Millisecond) {
		must(s.T, s.rt.Guard().Flush(s.Context()))
		must(s.T, s.rt.ReapPending(s.Context()))
		if time.Now().After(end) {
			s.Fatal("the planted write was not found")
		}
	}
	return b
}

// freeTwice makes a finding.
func (s *scene) freeTwice(tag core.Tag) {
	s.Helper()
	b := s.alloc(tag, mib)
	s.free(b)
	if _, err := s.rt.Deallocate(s.Context(), b.ID); err == nil {
		s.Fatal("it was freed twice")
	}
}

// refuse makes the budget refuse a request.
func (s *scene) refuse(tag core.Tag, bytes uint64) {
	s.Helper()
	if _, err := s.rt.Allocate(s.Context(), core.Request{Bytes: bytes, Stream: s.stream.ID(), Tag: tag}); err == nil {
		s.Fatalf("%d bytes were not refused", bytes)
	}
}

// openAt opens a runtime of another ordinal.
func openAt(t *testing.T, ordinal int) *fencepost.Runtime {
	t.Helper()
	rt, err := fencepost.Open(t.Context(), fencepost.Config{Device: fencepost.Sim, Ordinal: ordinal, Guard: "ledger"})
	must(t, err)
	t.Cleanup(func() { _, _ = rt.Close(context.Background()) })
	return rt
}
