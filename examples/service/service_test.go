package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/examples/service/internal/device"
)

// TestMain clears the variables that would change what is built here.
func TestMain(m *testing.M) {
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "FENCEPOST_") || strings.HasPrefix(name, "OTEL_") {
			_ = os.Unsetenv(name)
		}
	}
	goleak.VerifyTestMain(m)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// running is a service that a test stops.
type running struct {
	*service
	t     *testing.T
	sim   *sim.Device
	url   string
	stop  context.CancelFunc
	ended chan error
}

func start(t *testing.T, args ...string) *running {
	t.Helper()
	return startWith(t, nil, args...)
}

// startWith is start with an exporter.
func startWith(t *testing.T, spans sdktrace.SpanExporter, args ...string) *running {
	t.Helper()
	o, err := parse(args, io.Discard)
	must(t, err)
	d, err := sim.Open(sim.Config{Bytes: 64 << 20})
	must(t, err)
	o.stack.Driver = d
	ctx, stop := context.WithCancel(t.Context())
	s, err := open(ctx, o, spans)
	must(t, err)
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	must(t, err)
	r := &running{service: s, t: t, sim: d, url: "http://" + listener.Addr().String(), stop: stop, ended: make(chan error, 1)}
	go func() { r.ended <- s.serve(ctx, listener) }()
	t.Cleanup(func() { stop(); must(t, d.Close()); http.DefaultClient.CloseIdleConnections() })
	return r
}

// hang makes the next request hang on the device.
func (r *running) hang() (release func()) {
	r.t.Helper()
	lease, err := r.rt.Streams().Acquire(r.t.Context(), "test")
	must(r.t, err)
	release, err = r.sim.Hold(lease.Handle())
	must(r.t, err)
	must(r.t, lease.Release())
	return release
}

// sort sends a sort; the answer is status and body.
func (r *running) sort() string {
	response, err := http.Post(r.url+"/sort", "application/json", strings.NewReader(`{"keys":[3,1,2]}`))
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return response.Status + " " + string(text)
}

// background sends a sort to a device that hangs, and returns when the request
// has all its memory.
func (r *running) background() <-chan string {
	answer := make(chan string, 1)
	go func() { answer <- r.sort() }()
	eventually(r.t, "the request is at the device", func() bool { return r.rt.Stats().Live.Blocks == 3 })
	return answer
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for began := time.Now(); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestRequestsUnderWayEndBeforeTheServiceDoes(t *testing.T) {
	r := start(t, "-drain=3h")
	drain, drained := make(chan time.Duration, 1), make(chan struct{})
	r.pause = func(d time.Duration) { drain <- d; <-drained }
	release := r.hang()
	answer := r.background()
	r.stop()
	if d := <-drain; d != 3*time.Hour {
		t.Errorf("it drains for %v", d)
	}
	if err := check(t.Context(), options{check: r.url + "/readyz"}); err == nil || !strings.Contains(err.Error(), "stops") {
		t.Errorf("while it drains it says that it is ready: %v", err)
	}
	close(drained)
	select {
	case err := <-r.ended:
		t.Errorf("it ended with a request under way: %v", err)
	case <-time.After(time.Second):
	}
	release()
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
	if got := <-answer; got != "200 OK {\"keys\":[1,2,3]}\n" {
		t.Error(got)
	}
	must(t, r.close())
	if n := r.sim.Books().LiveBlocks; n != 0 {
		t.Errorf("%d blocks are live on the device", n)
	}
}

// Requests that do not end in time are told why, and give everything back.
func TestRequestsThatDoNotEndAreCutShort(t *testing.T) {
	r := start(t, "-stop-timeout=100ms")
	release := r.hang()
	answer := r.background()
	r.stop()
	err := <-r.ended
	if err == nil || !strings.Contains(err.Error(), "cut short after 100ms") {
		t.Errorf("ended with %v", err)
	}
	if got := <-answer; !strings.HasPrefix(got, "503 ") || !strings.Contains(got, `"unavailable"`) {
		t.Error(got)
	}
	release()
	must(t, r.close())
	if n := r.sim.Books().LiveBlocks; n != 0 {
		t.Errorf("%d blocks are live on the device", n)
	}
}

func TestWhatWasNeverGivenBackIsAnErrorAtTheEnd(t *testing.T) {
	r := start(t)
	_, err := cuda.Alloc[byte](t.Context(), r.rt.Memory(), 100, cuda.AllocOptions{Stream: core.DefaultStream, Tag: "test.leak"})
	must(t, err)
	r.stop()
	must(t, <-r.ended)
	if err := r.close(); err == nil || !strings.Contains(err.Error(), "leaked 100 bytes in 1 blocks") {
		t.Errorf("%v", err)
	}
}

// A device that hangs for good does not keep the service from ending.
func TestTheEndIsBounded(t *testing.T) {
	r := start(t, "-stop-timeout=50ms")
	r.options.step = 300 * time.Millisecond
	release := r.hang()
	defer release()
	answer := r.background()
	begin := time.Now()
	r.stop()
	if err := <-r.ended; err == nil {
		t.Error("requests were cut short without a word")
	}
	<-answer
	if err := r.close(); err == nil {
		t.Error("a device that hangs was closed without a word")
	}
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("it took %v", took)
	}
}

func TestTheProgramServesUntilItIsToldToStop(t *testing.T) {
	var mu sync.Mutex
	var log bytes.Buffer
	former := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, nil)))
	defer slog.SetDefault(former)
	ctx, stop := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() { code <- run(ctx, []string{"-listen=127.0.0.1:0", "-device=sim", "-budget=32MiB"}, io.Discard) }()
	var url []byte
	eventually(t, "the log says where it serves", func() bool {
		mu.Lock()
		defer mu.Unlock()
		url = bytes.Clone(regexp.MustCompile(`http://127[0-9.:]+`).Find(log.Bytes()))
		return url != nil
	})
	var stderr bytes.Buffer
	if got := run(t.Context(), []string{"-check=" + string(url) + "/readyz"}, &stderr); got != exitClean {
		t.Errorf("-check: %d %s", got, &stderr)
	}
	http.DefaultClient.CloseIdleConnections()
	stop()
	if got := <-code; got != exitClean || !strings.Contains(log.String(), "nothing was leaked") {
		t.Errorf("%d\n%s", got, &log)
	}
	if got := run(t.Context(), []string{"-check=" + string(url) + "/readyz"}, io.Discard); got != exitProblem {
		t.Errorf("-check of a service that has ended: %d", got)
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	to io.Writer
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}

func TestBadFlagsAreRefusedBeforeAnythingIsOpened(t *testing.T) {
	for flag, want := range map[string]string{
		"-no-such":            "not defined",
		"extra":               "flags only",
		"-trace-share=2":      "0 to 1",
		"-trace-share=NaN":    "0 to 1",
		"-patience=-1s":       "-patience",
		"-stop-timeout=0s":    "-stop-timeout",
		"-budget=much":        "-budget",
		"-device=tpu":         "tpu",
		"-guard=always":       "always",
		"-max-body=many":      "max-body",
		"-timeout=whenever":   "timeout",
		"-timeout=-1s":        "timeout of -1s",
		"-max-rows=-1":        "-1 rows",
		"-streams=1000000000": "Streams",
	} {
		var stderr bytes.Buffer
		if code := run(t.Context(), []string{flag}, &stderr); code != exitUsage || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: %d\n%s", flag, code, &stderr)
		}
	}
	var stderr bytes.Buffer
	if code := run(t.Context(), []string{"-h"}, &stderr); code != exitClean || !strings.Contains(stderr.String(), "-patience") {
		t.Errorf("-h: %d\n%s", code, &stderr)
	}
}

// What is wrong only once it is tried leaves nothing open behind it.
func TestWhatCannotBeOpenedIsAProblem(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer taken.Close()
	var stderr bytes.Buffer
	if code := run(t.Context(), []string{"-device=sim", "-listen=" + taken.Addr().String()}, &stderr); code != exitProblem || !strings.Contains(stderr.String(), "in use") {
		t.Errorf("%d\n%s", code, &stderr)
	}
}

// collector counts the exports that reach it.
func collector(t *testing.T) (url string, exports *atomic.Int64) {
	exports = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err == nil && r.URL.Path == "/v1/traces" && bytes.Contains(body, []byte("gpumem.launch")) && bytes.Contains(body, []byte("sorter")) {
			exports.Add(1)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, exports
}

func TestSpansAreExportedOnlyWhereTheVariablesSay(t *testing.T) {
	url, exports := collector(t)
	for name, c := range map[string]struct {
		variables map[string]string
		exported  bool
	}{
		"nothing":      {nil, false},
		"an endpoint":  {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_SERVICE_NAME": "sorter", "OTEL_EXPORTER_OTLP_COMPRESSION": "none"}, true},
		"switched off": {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_SDK_DISABLED": "true"}, false},
		"exporter off": {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_TRACES_EXPORTER": "none"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range c.variables {
				t.Setenv(k, v)
			}
			before := exports.Load()
			r := start(t)
			if got := r.sort(); !strings.HasPrefix(got, "200 ") {
				t.Error(got)
			}
			r.stop()
			must(t, <-r.ended)
			must(t, r.close())
			if got := exports.Load() > before; got != c.exported {
				t.Errorf("exported: %v", got)
			}
			if counts := r.traces.counts(); c.exported && (counts.Exported == 0 || counts.Exported != counts.Started || counts.Dropped != 0) {
				t.Errorf("%+v", counts)
			}
		})
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "smoke")
	if _, err := open(t.Context(), options{}, nil); err == nil || !strings.Contains(err.Error(), "smoke") {
		t.Errorf("an unknown protocol: %v", err)
	}
}

func TestALostDeviceEndsTheServiceWithOneError(t *testing.T) {
	r := start(t)
	r.sim.LoseContext(driver.IllegalAddress)
	if got := r.sort(); !strings.HasPrefix(got, "503 ") {
		t.Error(got)
	}
	r.stop()
	must(t, <-r.ended)
	if err := r.close(); err == nil || strings.Count(err.Error(), "ILLEGAL_ADDRESS") > 2 {
		t.Errorf("%v", err)
	}
}

func TestSpansAreCounted(t *testing.T) {
	o, err := parse([]string{"-device=sim"}, io.Discard)
	must(t, err)
	recorder := tracetest.NewInMemoryExporter()
	s, err := open(t.Context(), o, recorder)
	must(t, err)
	_, err = s.engine.Sort(t.Context(), []uint32{2, 1})
	must(t, err)
	must(t, s.rt.Drain(t.Context())) // spans of the device come when that is done
	must(t, s.rt.ReapPending(t.Context()))
	must(t, s.traces.provider.ForceFlush(t.Context()))
	counts := s.traces.counts()
	if n := uint64(len(recorder.GetSpans())); n == 0 || n != counts.Started || n != counts.Exported || counts.Unexported() != 0 {
		t.Errorf("%d spans, counted %+v", n, counts)
	}
	gpu, err := s.rt.Driver().Properties()
	must(t, err)
	for _, span := range recorder.GetSpans() {
		if id, _ := span.Resource.Set().Value("hw.id"); id.AsString() != gpu.UUID || gpu.UUID == "" {
			t.Errorf("%s is of GPU %q, want %q", span.Name, id.AsString(), gpu.UUID)
		}
	}
	must(t, s.close())
}

func TestTheGuardIsSwitchedOnlyWhereTheFlagSaysSo(t *testing.T) {
	for _, permitted := range []bool{false, true} {
		r := start(t, "-switch-guard="+strconv.FormatBool(permitted))
		response, err := http.Post(r.url+"/debug/gpumem/guard", "application/json", strings.NewReader(`{"mode":"ledger"}`))
		must(t, err)
		must(t, response.Body.Close())
		if switched := r.rt.GuardStatus().Setting == "ledger"; switched != permitted || (response.StatusCode == http.StatusOK) != permitted {
			t.Errorf("-switch-guard=%v: %s, and the guard is set to %s", permitted, response.Status, r.rt.GuardStatus().Setting)
		}
		r.stop()
		must(t, <-r.ended)
		must(t, r.close())
	}
}

// capture makes the log of a test readable.
func capture(t *testing.T) (lines func() []string) {
	t.Helper()
	var mu sync.Mutex
	var log bytes.Buffer
	former := slog.Default()
	slog.SetDefault(slog.New(withTrace(slog.NewTextHandler(lockedWriter{&mu, &log}, nil))))
	t.Cleanup(func() { slog.SetDefault(former) })
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Split(log.String(), "\n")
	}
}

// line waits for the line of the log that has all of parts.
func line(t *testing.T, lines func() []string, parts ...string) string {
	t.Helper()
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(5 * time.Millisecond) {
	next:
		for _, l := range lines() {
			for _, part := range parts {
				if !strings.Contains(l, part) {
					continue next
				}
			}
			return l
		}
	}
	t.Fatalf("no line has all of %q:\n%s", parts, strings.Join(lines(), "\n"))
	return ""
}

func TestTheLogHasRefusalsInTheirTraceFindingsAndHealth(t *testing.T) {
	lines := capture(t)
	r := start(t, "-budget=1MiB")
	response, err := http.Post(r.url+"/sort", "application/json", strings.NewReader(`{"keys":[1`+strings.Repeat(",1", 1<<18)+`]}`))
	must(t, err)
	defer response.Body.Close()
	var problem struct {
		TraceID string `json:"trace_id"`
	}
	must(t, json.NewDecoder(response.Body).Decode(&problem))
	if response.StatusCode != http.StatusRequestEntityTooLarge || problem.TraceID == "" {
		t.Fatalf("%d %+v", response.StatusCode, problem)
	}
	line(t, lines, "a request was refused", "route=\"POST /sort\"", "status=413", "code=exceeds_budget", "out of budget: requested", "trace_id="+problem.TraceID, "span_id=", "trace=full")
	if answer := r.sort(); !strings.HasPrefix(answer, "200") {
		t.Fatal(answer)
	}

	r.doubleFree()
	line(t, lines, "gpu memory finding: ", "kind=double-free", "tag=test.twice")
	line(t, lines, "gpu memory health: degraded", "findings")
	r.stop()
	must(t, <-r.ended)
	must(t, r.close())
	line(t, lines, "gpu memory health: closed")
	for _, l := range lines() {
		if strings.Contains(l, "a request") && !strings.Contains(l, "code=exceeds_budget") {
			t.Errorf("a request that was served, or a second refusal, is in the log: %s", l)
		}
	}
}

// The trace of a request that the head did not sample is in no backend: what the
// log and the answer name is the one span of the refusal.
func TestARefusalThatIsNotSampledLeadsToItsOneSpan(t *testing.T) {
	lines := capture(t)
	spans := tracetest.NewInMemoryExporter()
	r := startWith(t, spans, "-budget=1MiB", "-trace-share=0")
	if answer := r.sort(); !strings.HasPrefix(answer, "200") {
		t.Fatal(answer)
	}
	response, err := http.Post(r.url+"/sort", "application/json", strings.NewReader(`{"keys":[1`+strings.Repeat(",1", 1<<18)+`]}`))
	must(t, err)
	defer response.Body.Close()
	var problem struct {
		TraceID string `json:"trace_id"`
	}
	must(t, json.NewDecoder(response.Body).Decode(&problem))
	must(t, r.traces.provider.ForceFlush(t.Context()))
	got := spans.GetSpans()
	if len(got) != 1 || got[0].Name != "gpumem.refusal service.sort" || got[0].SpanContext.TraceID().String() != problem.TraceID {
		t.Fatalf("%d spans %v, the answer names %q", len(got), got, problem.TraceID)
	}
	refused := line(t, lines, "a request was refused", "trace_id="+problem.TraceID, "span_id="+got[0].SpanContext.SpanID().String(), "trace=event")
	if strings.Count(refused, "trace_id=") != 1 {
		t.Errorf("the trace is named twice: %s", refused)
	}
	r.stop()
	must(t, <-r.ended)
	must(t, r.close())
	for _, l := range lines() {
		if strings.Contains(l, "trace_id=") && !strings.Contains(l, problem.TraceID) {
			t.Errorf("a trace that nobody has: %s", l)
		}
	}
}

func (r *running) doubleFree() {
	r.t.Helper()
	block, err := r.rt.Allocate(r.t.Context(), core.Request{Bytes: 512, Tag: "test.twice"})
	must(r.t, err)
	_, err = r.rt.Deallocate(r.t.Context(), block.ID)
	must(r.t, err)
	if _, err = r.rt.Deallocate(r.t.Context(), block.ID); err == nil {
		r.t.Fatal("freed twice")
	}
}

// shipped is the first text of docker-compose.yml that the expression's group
// takes: the services that are always there come first.
func shipped(t *testing.T, expression string) string {
	t.Helper()
	text, err := os.ReadFile("../../docker-compose.yml")
	must(t, err)
	found := regexp.MustCompile(expression).FindSubmatch(text)
	if found == nil {
		t.Fatalf("docker-compose.yml has nothing like %s", expression)
	}
	return string(found[1])
}

// Nobody is refused, whatever the machine's speed: the budget has room for the
// largest request on every turn, and for the frees of as many before them that the
// device has not passed. The guard takes less than a hundredth.
func TestTheShippedBudgetHasRoomForTheShippedLoad(t *testing.T) {
	budget, err := fencepost.ParseBytes(shipped(t, `FENCEPOST_BUDGET: (\S+)`))
	must(t, err)
	rows, err := strconv.Atoi(shipped(t, `"-rows=([0-9]+)"`))
	must(t, err)
	join := device.JoinBytes(device.Tables{Left: make([]uint32, rows/2), RightKeys: make([]uint32, (rows+1)/2)})
	r := start(t)
	turns := uint64(r.engine.MaxJobs())
	r.stop()
	must(t, <-r.ended)
	must(t, r.close())
	if most := 2 * turns * max(device.SortBytes(rows), join); budget-budget/100 < most {
		t.Errorf("%d turns of %d rows take %d bytes, and the budget has %d", turns, rows, most, budget)
	}
}
