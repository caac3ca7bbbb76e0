package spanpipe_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/spanpipe"
)

// receiver is a receiver of OTLP over gRPC with gRPC's own limits.
type receiver struct {
	collectortrace.UnimplementedTraceServiceServer
	mu             sync.Mutex
	spans, largest int
}

func (r *receiver) Export(_ context.Context, request *collectortrace.ExportTraceServiceRequest) (*collectortrace.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.largest = max(r.largest, proto.Size(request))
	for _, resource := range request.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			r.spans += len(scope.GetSpans())
		}
	}
	return &collectortrace.ExportTraceServiceResponse{}, nil
}

// receive starts a receiver and returns an exporter to it.
func receive(t *testing.T) (*receiver, sdktrace.SpanExporter) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Do(t, err)
	r, server := &receiver{}, grpc.NewServer()
	collectortrace.RegisterTraceServiceServer(server, r)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	exporter, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithEndpoint(listener.Addr().String()), otlptracegrpc.WithInsecure())
	must.Do(t, err)
	return r, exporter
}

// work makes n spans at least: launches with long names and tags, each of which
// waits for another stream.
func work(t *testing.T, provider *sdktrace.TracerProvider, n int) {
	t.Helper()
	rt, err := fencepost.Open(t.Context(), fencepost.Config{Device: fencepost.Sim, Guard: "off", TracerProvider: provider})
	must.Do(t, err)
	long := strings.Repeat("long.name.", 12)
	lease, err := rt.Streams().Acquire(t.Context(), "work")
	must.Do(t, err)
	streams := []core.StreamID{core.DefaultStream, lease.ID()}
	b, err := rt.Allocate(t.Context(), core.Request{Bytes: 64, Tag: core.Tag(long)})
	must.Do(t, err)
	for i := 0; i < n; i += 3 {
		must.Do(t, rt.LaunchNamed(t.Context(), long, streams[i%2], []core.Use{{Block: b.ID, Access: core.ReadWrite}}, func(context.Context) error { return nil }))
	}
	_, err = rt.Deallocate(t.Context(), b.ID)
	must.Do(t, err)
	must.Do(t, lease.Release())
	_, err = rt.Close(t.Context())
	must.Do(t, err)
}

// A receiver of gRPC refuses a message above 4 MiB, and the whole batch with it.
// The shipped batch stays below half of that with names of 120 bytes and links.
func TestABatchFitsAReceiversLimit(t *testing.T) {
	const limit = 4 << 20
	for _, c := range []struct {
		batch int
		fits  bool
	}{{spanpipe.DefaultBatch, true}, {4 * spanpipe.DefaultBatch, false}} {
		r, exporter := receive(t)
		pipe, provider := pipeline(exporter, spanpipe.Config{Batch: c.batch})
		work(t, provider, c.batch+100)
		err := provider.Shutdown(t.Context())
		counts := pipe.Counts()
		t.Logf("a batch of %d: the largest message that came had %d bytes, %+v, %v", c.batch, r.largest, counts, err)
		if c.fits && (counts.Failed != 0 || counts.Exported != counts.Ended || int(counts.Exported) != r.spans || r.largest > limit/2) {
			t.Errorf("a batch of %d: %+v, %d arrived, at most %d bytes at a time", c.batch, counts, r.spans, r.largest)
		}
		if !c.fits && (counts.Failed < uint64(c.batch) || int(counts.Exported) != r.spans) {
			t.Errorf("a batch of %d passed the limit: %+v, %d arrived", c.batch, counts, r.spans)
		}
	}
}
