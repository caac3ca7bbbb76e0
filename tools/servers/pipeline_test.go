package servers

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/otelcol"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
)

// patience bounds what a busy machine may take for something.
const patience = time.Minute

// tempo stands where Tempo would: it keeps the spans that it is sent.
type tempo struct {
	collectortrace.UnimplementedTraceServiceServer
	mu       sync.Mutex
	spans    map[string][]*tracepb.Span // by trace
	scopes   map[string]string          // by span
	services map[string]bool
}

func (s *tempo) Export(_ context.Context, r *collectortrace.ExportTraceServiceRequest) (*collectortrace.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range r.GetResourceSpans() {
		for _, kv := range of.GetResource().GetAttributes() {
			if kv.GetKey() == "service.name" {
				s.services[kv.GetValue().GetStringValue()] = true
			}
		}
		for _, scope := range of.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				s.scopes[string(span.GetSpanId())] = scope.GetScope().GetName()
				s.spans[string(span.GetTraceId())] = append(s.spans[string(span.GetTraceId())], span)
			}
		}
	}
	return &collectortrace.ExportTraceServiceResponse{}, nil
}

func (s *tempo) count() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, spans := range s.spans {
		n += len(spans)
	}
	return n
}

// waitFor waits until so many spans have come, or for as long as that may take.
func (s *tempo) waitFor(n int) {
	for begin := time.Now(); s.count() < n && time.Since(begin) < patience; {
		time.Sleep(20 * time.Millisecond)
	}
}

// newTempo listens, and serves when it is told to: the collector sets gRPC's
// logger when it starts, for which nobody may be using gRPC.
func newTempo(t *testing.T) (sink *tempo, address string, serve func()) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	sink = &tempo{spans: map[string][]*tracepb.Span{}, scopes: map[string]string{}, services: map[string]bool{}}
	server := grpc.NewServer()
	collectortrace.RegisterTraceServiceServer(server, sink)
	t.Cleanup(server.Stop)
	return sink, listener.Addr().String(), func() { go func() { _ = server.Serve(listener) }() }
}

// taken are the ports that freePort has given.
var taken sync.Map

// freePort is one that nobody listens on now. It lies below those that systems
// give to connections, such as a scrape's, so nobody has it until it is used.
func freePort(t *testing.T) string {
	t.Helper()
	for range 1000 {
		port := strconv.Itoa(20_000 + rand.IntN(10_000))
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:"+port)
		if err != nil {
			continue
		}
		must(t, listener.Close())
		if _, before := taken.LoadOrStore(port, true); !before {
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

// startCollector runs the collector with the configuration of
// docker-compose.yml, of which only the addresses are others, and what more is
// added.
func startCollector(t *testing.T, to, more string) (endpoint string) {
	t.Helper()
	port := freePort(t)
	dir := t.TempDir()
	overlay, added := filepath.Join(dir, "addresses.yaml"), filepath.Join(dir, "more.yaml")
	must(t, os.WriteFile(added, []byte(more), 0o600))
	must(t, os.WriteFile(overlay, fmt.Appendf(nil, `
receivers: {otlp: {protocols: {grpc: {endpoint: "127.0.0.1:%s"}, http: {endpoint: "127.0.0.1:0"}}}}
exporters: {otlp_grpc: {endpoint: "%s"}}
service: {telemetry: {metrics: {readers: [{pull: {exporter: {prometheus: {host: 127.0.0.1, port: %s}}}}]}}}
`, port, to, freePort(t)), 0o600))
	collector, err := otelcol.NewCollector(otelcol.CollectorSettings{
		Factories: factories, DisableGracefulShutdown: true,
		LoggingOptions: []zap.Option{zap.WrapCore(func(zapcore.Core) zapcore.Core { return zapcore.NewNopCore() })},
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			URIs: []string{"file:" + collectorFile, "file:" + overlay, "file:" + added}, ProviderFactories: []confmap.ProviderFactory{fileprovider.NewFactory()}}},
	})
	must(t, err)
	ended := make(chan error, 1)
	go func() { ended <- collector.Run(context.Background()) }()
	t.Cleanup(func() {
		collector.Shutdown()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for begin := time.Now(); time.Since(begin) < patience; {
		if collector.GetState() == otelcol.StateRunning {
			return "http://127.0.0.1:" + port
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the collector ended: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	t.Fatal("the collector does not run")
	return ""
}

// startService builds and starts the example service, with the variables that
// docker-compose.yml gives it.
func startService(t *testing.T, endpoint string, more ...string) (url string, stop func()) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "service")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./examples/service")
	build.Dir = root
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	run := exec.CommandContext(t.Context(), program, "-listen=127.0.0.1:0")
	run.Env = append(os.Environ(), "FENCEPOST_DEVICE=sim", "FENCEPOST_GUARD=off",
		"OTEL_SERVICE_NAME=fencepost-service", "OTEL_EXPORTER_OTLP_ENDPOINT="+endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc")
	run.Env = append(run.Env, more...)
	log, err := run.StderrPipe()
	must(t, err)
	must(t, run.Start())
	lines := bufio.NewScanner(log)
	for url == "" && lines.Scan() {
		url = regexp.MustCompile(`http://127[0-9.:]+`).FindString(lines.Text())
	}
	return url, func() {
		must(t, run.Process.Signal(os.Interrupt))
		rest, _ := io.ReadAll(log)
		if err := run.Wait(); err != nil {
			t.Errorf("the service ended with %v\n%s", err, rest)
		}
	}
}

func post(t *testing.T, url, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	must(t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("%s: %d %s %v", url, response.StatusCode, text, err)
	}
}

// spansOf is how many spans a golden trace of the service has.
func spansOf(t *testing.T, golden string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "examples/service/internal/web/testdata", golden))
	must(t, err)
	return strings.Count(string(text), "\n")
}

// The service's spans go through a real collector, with the configuration that
// is shipped, and come out complete: those of the golden traces, each under
// its request, and nothing else.
func TestTheServicesSpansComeOutOfTheCollector(t *testing.T) {
	const requests = 40
	sink, address, serve := newTempo(t)
	endpoint := startCollector(t, address, "{}")
	serve()
	url, stop := startService(t, endpoint)
	for range requests {
		post(t, url+"/sort", `{"keys":[3,1,2]}`)
		post(t, url+"/join", `{"left":[7,8],"right_keys":[8],"right_values":[80]}`)
	}
	stop() // flushes
	sorts, joins := spansOf(t, "sort.trace"), spansOf(t, "join.trace")
	want := requests * (sorts + joins)
	sink.waitFor(want)
	if got := sink.count(); got != want || len(sink.spans) != 2*requests {
		t.Fatalf("%d spans in %d traces came out, of %d in %d", got, len(sink.spans), want, 2*requests)
	}
	sink.mu.Lock()
	defer sink.mu.Unlock()
	if len(sink.services) != 1 || !sink.services["fencepost-service"] {
		t.Errorf("services: %v", sink.services)
	}
	for _, spans := range sink.spans {
		checkTrace(t, spans, map[string]int{"POST /sort": sorts, "POST /join": joins})
	}
}

// checkTrace demands one root, a server's, as many spans as it should have, and
// a parent in the trace for each of the others.
func checkTrace(t *testing.T, spans []*tracepb.Span, sizes map[string]int) {
	t.Helper()
	ids := map[string]bool{}
	for _, s := range spans {
		ids[string(s.GetSpanId())] = true
	}
	roots := 0
	for _, s := range spans {
		switch parent := string(s.GetParentSpanId()); {
		case parent == "":
			roots++
			if s.GetKind() != tracepb.Span_SPAN_KIND_SERVER || sizes[s.GetName()] != len(spans) {
				t.Errorf("a trace of %d spans under %s %v", len(spans), s.GetName(), s.GetKind())
			}
		case !ids[parent]:
			t.Errorf("%s has no parent in its trace", s.GetName())
		}
	}
	if roots != 1 {
		t.Errorf("a trace with %d roots", roots)
	}
}
