package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/examples/service/internal/api"
	"github.com/fencepost-gpu/fencepost/examples/service/internal/device"
	"github.com/fencepost-gpu/fencepost/examples/service/internal/web"
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

// setup is how a test wants its service.
type setup struct {
	stack    fencepost.Config
	schedule sim.Schedule
	patience time.Duration
	limits   func(*web.Limits)
	// faults, if not nil, stands between the runtime and the device.
	faults func(*drivertest.Faults)
	// lost: the device will not be there at the end, and its books say
	// nothing.
	lost bool
}

// oneTurn is a stack with streams for one request at a time.
var oneTurn = fencepost.Config{Streams: 2}

// service is a service on a simulated device, served over loopback.
type service struct {
	*testing.T
	url    string
	client *http.Client
	web    *web.Server
	rt     *fencepost.Runtime
	sim    *sim.Device
	spans  *tracetest.InMemoryExporter
}

// start starts a service. At the end of the test no request may hold
// anything, and nobody may have found anything.
func start(t *testing.T, cfg setup) *service {
	t.Helper()
	d, err := sim.Open(sim.Config{Bytes: 256 << 20, Schedule: cfg.schedule})
	must(t, err)
	s := &service{T: t, sim: d, spans: tracetest.NewInMemoryExporter()}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(s.spans))
	faults := drivertest.NewFaults(d)
	cfg.stack.Driver, cfg.stack.TracerProvider = faults, provider
	s.rt, err = fencepost.Open(t.Context(), cfg.stack)
	must(t, err)
	engine, err := device.New(device.Config{Runtime: s.rt, TracerProvider: provider, Patience: cfg.patience})
	must(t, err)
	if cfg.faults != nil {
		cfg.faults(faults)
	}
	limits := web.DefaultLimits
	if cfg.limits != nil {
		cfg.limits(&limits)
	}
	s.web, err = web.New(web.Config{Runtime: s.rt, Engine: engine, TracerProvider: provider, Limits: limits})
	must(t, err)
	server := httptest.NewServer(s.web.Handler())
	s.url, s.client = server.URL, server.Client()
	t.Cleanup(func() {
		server.Close() // waits for the requests
		s.end(cfg.lost)
	})
	return s
}

func (s *service) end(lost bool) {
	ctx := context.Background()
	must(s.T, s.web.Wait(ctx))
	if !lost {
		must(s.T, s.rt.Drain(ctx))
		if st := s.rt.Stats(); st.Outstanding() != (core.Amount{}) || st.Claims != 0 || st.Charged != 0 || st.OpenIntents != 0 {
			s.Errorf("held after the last request: %+v", st)
		}
	}
	if n := s.rt.Streams().Stats().Leased; n != 0 {
		s.Errorf("%d streams are leased after the last request", n)
	}
	left, err := s.rt.Close(ctx)
	if !lost && (err != nil || len(left.Leaks) > 0 || s.sim.FindingCount() > 0 || s.sim.Books().LiveBlocks > 0) {
		s.Errorf("closing: %v, left over %+v, found %v", err, left, s.sim.Findings())
	}
	must(s.T, s.sim.Close())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// problem is the refusal that came back.
func (a answer) problem(t *testing.T) api.Problem {
	t.Helper()
	var p api.Problem
	if err := json.Unmarshal(a.body, &p); err != nil || a.header.Get("Content-Type") != api.ProblemJSON || p.Status != a.status || p.Detail == "" || p.Title == "" && p.Status != 499 {
		t.Errorf("no problem: %d %s (%v)", a.status, a.body, err)
	}
	return p
}

// send makes a request; header holds names and values in turn.
func (s *service) send(ctx context.Context, method, path string, body io.Reader, header ...string) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, method, s.url+path, body)
	if err != nil {
		return answer{}, err
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := s.client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, text}, err
}

func (s *service) post(path, body string, header ...string) answer {
	s.Helper()
	a, err := s.send(s.Context(), http.MethodPost, path, strings.NewReader(body), append([]string{"Content-Type", api.JSON}, header...)...)
	must(s.T, err)
	return a
}

func (s *service) get(path string, header ...string) answer {
	s.Helper()
	a, err := s.send(s.Context(), http.MethodGet, path, http.NoBody, header...)
	must(s.T, err)
	return a
}

// keys is a request to sort n keys.
func keys(n int) (body string) { return `{"keys":[` + strings.Repeat("0,", n-1) + `0]}` }

// ask makes a request and reads its answer. Of a refusal the status says enough.
func (s *service) ask(path string, request, to any) (status int, err error) {
	body, err := json.Marshal(request)
	must(s.T, err)
	a, err := s.send(s.Context(), http.MethodPost, path, bytes.NewReader(body), "Content-Type", api.JSON)
	if err == nil && a.status == http.StatusOK {
		err = json.Unmarshal(a.body, to)
	}
	return a.status, err
}

// trySort sorts random keys and says what came back: the status, and an error if a
// result is wrong.
func (s *service) trySort(rng *rand.Rand) (int, error) {
	request, got := api.SortRequest{Keys: make([]uint32, 1+rng.IntN(3000))}, api.SortRequest{}
	for i := range request.Keys {
		request.Keys[i] = rng.Uint32()
	}
	status, err := s.ask(api.RouteSort, request, &got)
	if err == nil && status == http.StatusOK && !slices.Equal(got.Keys, slices.Sorted(slices.Values(request.Keys))) {
		err = fmt.Errorf("%d keys came back in a wrong order", len(request.Keys))
	}
	return status, err
}

// tryJoin joins random tables.
func (s *service) tryJoin(rng *rand.Rand) (int, error) {
	request, want := randomTables(rng)
	var response api.JoinResponse
	status, err := s.ask(api.RouteJoin, request, &response)
	got := make([]uint32, len(response.Values))
	for i, v := range response.Values {
		if got[i] = device.NoPartner; v != nil {
			got[i] = *v
		}
	}
	if err == nil && status == http.StatusOK && !slices.Equal(got, want) {
		err = fmt.Errorf("%d rows were joined wrongly with %d", len(request.Left), len(request.RightKeys))
	}
	return status, err
}

func randomTables(rng *rand.Rand) (request api.JoinRequest, want []uint32) {
	for i := range uint32(1 + rng.IntN(1000)) {
		request.RightKeys, request.RightValues = append(request.RightKeys, 3*i), append(request.RightValues, rng.Uint32()>>1)
	}
	for range 1 + rng.IntN(3000) {
		k := rng.Uint32N(4000)
		v := uint32(device.NoPartner)
		if k%3 == 0 && int(k/3) < len(request.RightKeys) {
			v = request.RightValues[k/3]
		}
		request.Left, want = append(request.Left, k), append(want, v)
	}
	return request, want
}

// crowd sends requests from many clients and counts the answers by status.
func (s *service) crowd(clients, each int) map[int]int {
	var group sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	for c := range clients {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(c)))
			for range each {
				try := s.trySort
				if rng.IntN(2) == 0 {
					try = s.tryJoin
				}
				status, err := try(rng)
				if err != nil {
					s.Errorf("client %d: %v", c, err)
				}
				mu.Lock()
				statuses[status]++
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return statuses
}

// each is how many requests each member of a crowd makes.
func each() int {
	if testing.Short() {
		return 4
	}
	return 12
}

func TestManyRequestsAtATimeAreAllRight(t *testing.T) {
	s := start(t, setup{patience: time.Second})
	if got := s.crowd(16, each()); got[http.StatusOK] != 16*each() {
		t.Errorf("answers by status: %v", got)
	}
}

// With memory for about two requests some may be refused, one for which another holds the memory is, and the others
// are right all the same.
func TestWithLittleMemoryRequestsAreRightOrRefused(t *testing.T) {
	s := start(t, setup{stack: fencepost.Config{Budget: 160 << 10, Guard: "off"}})
	hog, err := s.rt.Reserve(t.Context(), 159<<10, "test.hog")
	must(t, err)
	if status, err := s.trySort(rand.New(rand.NewPCG(1, 0))); status != http.StatusServiceUnavailable {
		t.Errorf("without memory: %d, %v", status, err)
	}
	must(t, s.rt.ReleaseClaim(t.Context(), hog.ID))
	got := s.crowd(16, each())
	if got[http.StatusOK] == 0 || got[http.StatusOK]+got[http.StatusServiceUnavailable] != 16*each() {
		t.Errorf("answers by status: %v", got)
	}
}

func TestARefusalExplainsWhoHoldsTheMemory(t *testing.T) {
	const limit = 1 << 20
	s := start(t, setup{stack: fencepost.Config{Budget: limit, Guard: "off"}, patience: 20 * time.Millisecond})
	lease, err := s.rt.Streams().Acquire(t.Context(), "test")
	must(t, err)
	hog, err := cuda.Alloc[byte](t.Context(), s.rt.Memory(), 700<<10, cuda.AllocOptions{Stream: lease.ID(), Tag: "test.hog"})
	must(t, err)
	claim, err := s.rt.Reserve(t.Context(), 200<<10, "test.claim")
	must(t, err)
	a := s.post(api.RouteSort, keys(50_000))
	p := a.problem(t)
	if a.status != http.StatusServiceUnavailable || p.Code != api.CodeOutOfBudget || a.header.Get("Retry-After") != "1" || p.TraceID == "" {
		t.Errorf("%d %s, headers %v", a.status, a.body, a.header)
	}
	want := api.Memory{Asked: device.SortBytes(50_000), Remaining: limit - 900<<10, Limit: limit, Live: 700 << 10, Claimed: 200 << 10,
		Holders: []api.Holder{{Tag: "test.hog", State: "live", Bytes: 700 << 10, Blocks: 1},
			{Tag: "test.claim", State: "claimed", Bytes: 200 << 10, Blocks: 1}}}
	if p.Memory != nil && p.Memory.WaitedMS > 0 { // how long depends on the machine
		want.WaitedMS = p.Memory.WaitedMS
	}
	if p.Memory == nil || fmt.Sprint(*p.Memory) != fmt.Sprint(want) {
		t.Errorf("memory:\ngot  %+v\nwant %+v", p.Memory, want)
	}
	p = s.post(api.RouteSort, keys(500_000)).problem(t)
	if p.Status != http.StatusRequestEntityTooLarge || p.Code != api.CodeExceedsBudget || p.Memory == nil {
		t.Errorf("what can never fit: %+v", p)
	}
	must(t, s.rt.ReleaseClaim(t.Context(), claim.ID))
	must(t, hog.Free(t.Context()))
	must(t, lease.Release())
	if a := s.post(api.RouteSort, keys(50_000)); a.status != http.StatusOK {
		t.Errorf("when it was free again: %d %s", a.status, a.body)
	}
}

// hang makes the next request hang on the device. The streams of the pool are
// given out last in, first out.
func (s *service) hang() (release func()) {
	s.Helper()
	lease, err := s.rt.Streams().Acquire(s.Context(), "test")
	must(s.T, err)
	release, err = s.sim.Hold(lease.Handle())
	must(s.T, err)
	must(s.T, lease.Release())
	return release
}

// background sends a sort that nobody waits for until its answer is asked for.
func (s *service) background(ctx context.Context) <-chan answer {
	answers := make(chan answer, 1)
	go func() {
		a, err := s.send(ctx, http.MethodPost, api.RouteSort, strings.NewReader(keys(100)), "Content-Type", api.JSON)
		if err != nil && ctx.Err() == nil {
			s.Error(err)
		}
		answers <- a
	}()
	return answers
}

// eventually waits until holds is true.
func (s *service) eventually(what string, holds func() bool) {
	s.Helper()
	for began := time.Now(); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			s.Fatalf("never: %s", what)
		}
	}
}

func (s *service) inFlight(n int) func() bool {
	return func() bool {
		return strings.Contains(string(s.get(api.RouteMetrics).body), fmt.Sprintf("service_requests_in_flight %d\n", n))
	}
}

func TestMoreRequestsThanPlacesAreRefusedAtOnce(t *testing.T) {
	s := start(t, setup{stack: oneTurn, limits: func(l *web.Limits) { l.Waiting = 1 }})
	release := s.hang()
	first, second := s.background(t.Context()), s.background(t.Context())
	s.eventually("both are inside", s.inFlight(2))
	a := s.post(api.RouteSort, keys(1))
	if p := a.problem(t); a.status != http.StatusTooManyRequests || p.Code != api.CodeTooMany || a.header.Get("Retry-After") != "1" {
		t.Errorf("the third: %d %s, %v", a.status, a.body, a.header)
	}
	release()
	for _, c := range []<-chan answer{first, second} {
		if a := <-c; a.status != http.StatusOK {
			t.Errorf("one of those inside: %d %s", a.status, a.body)
		}
	}
}

func TestADeadlineIsKept(t *testing.T) {
	s := start(t, setup{stack: oneTurn, limits: func(l *web.Limits) { l.Timeout = time.Hour }})
	release := s.hang()
	atDevice := s.background(t.Context())
	s.eventually("it is at the device", func() bool { return s.rt.Stats().Live.Blocks == 3 })
	// This one asks for less, and waits for its turn only: it is told first.
	p := s.post(api.RouteSort, keys(1), api.HeaderTimeout, "50ms").problem(t)
	if p.Status != http.StatusGatewayTimeout || p.Code != api.CodeDeadline || len(atDevice) != 0 {
		t.Errorf("waiting for a turn: %+v; %d told before it", p, len(atDevice))
	}
	release()
	if a := <-atDevice; a.status != http.StatusOK {
		t.Errorf("with an hour at the device: %d %s", a.status, a.body)
	}
	release = s.hang()
	if p := s.post(api.RouteSort, keys(100), api.HeaderTimeout, "500ms").problem(t); p.Status != http.StatusGatewayTimeout || p.Code != api.CodeDeadline {
		t.Errorf("at the device: %+v", p)
	}
	release()
}

func TestAClientThatGoesAwayCostsNoMemory(t *testing.T) {
	s := start(t, setup{})
	release := s.hang()
	ctx, cancel := context.WithCancel(t.Context())
	gone := s.background(ctx)
	s.eventually("its memory is allocated", func() bool { return s.rt.Stats().Live.Blocks == 3 })
	cancel()
	<-gone
	s.eventually("it has ended", s.inFlight(0))
	if st := s.rt.Stats(); st.Live.Blocks != 0 || st.Claims != 0 {
		t.Errorf("left behind: %+v", st)
	}
	if page := string(s.get(api.RouteMetrics).body); !strings.Contains(page, `service_refusals_total{reason="client_gone"} 1`) {
		t.Error("it was not counted")
	}
	release()
}

// A body that comes too slowly ends with the request's time, and the place is
// free again.
func TestASlowUploadIsEnded(t *testing.T) {
	s := start(t, setup{stack: oneTurn, limits: func(l *web.Limits) { l.Waiting, l.Timeout = 0, time.Minute }})
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	must(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST /sort HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\n%s: 500ms\r\nContent-Length: 400\r\nConnection: close\r\n\r\n{\"keys\":[1", api.JSON, api.HeaderTimeout)
	must(t, err)
	must(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	text, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 408 ") || !strings.Contains(string(text), string(api.CodeTooSlow)) {
		t.Errorf("%v: %s", err, text)
	}
	if a := s.post(api.RouteSort, keys(10)); a.status != http.StatusOK {
		t.Errorf("the next: %d %s", a.status, a.body)
	}
}

// The bound on the upload must not outlive it: a request that was read in time
// may take longer at the device than the rest of the connection's reads.
func TestAConnectionOutlivesItsRequestsDeadlines(t *testing.T) {
	s := start(t, setup{limits: func(l *web.Limits) { l.Timeout = time.Minute }})
	s.eventually("half a second is enough for a request", func() bool {
		return s.post(api.RouteSort, keys(10), api.HeaderTimeout, "500ms").status == http.StatusOK
	})
	time.Sleep(600 * time.Millisecond)
	if a := s.post(api.RouteSort, keys(10)); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestWhatIsNoRequestIsRefusedWithAReason(t *testing.T) {
	s := start(t, setup{limits: func(l *web.Limits) { l.MaxBody, l.MaxRows = 4096, 100 }})
	for name, c := range map[string]struct {
		path, body string
		header     []string
		status     int
		code       api.Code
		detail     string
	}{
		"no type":           {path: "/sort", body: "{}", header: []string{"Content-Type", ""}, status: 415, code: api.CodeUnsupportedType, detail: "application/json"},
		"another type":      {path: "/sort", body: "1,2", header: []string{"Content-Type", "text/csv"}, status: 415, code: api.CodeUnsupportedType, detail: "text/csv"},
		"no JSON":           {path: "/sort", body: "keys", status: 400, code: api.CodeMalformed, detail: "invalid character"},
		"nothing":           {path: "/sort", body: "", status: 400, code: api.CodeMalformed, detail: "too early"},
		"cut off":           {path: "/sort", body: `{"keys":[1,2`, status: 400, code: api.CodeMalformed, detail: "too early"},
		"more behind it":    {path: "/sort", body: `{"keys":[1]} {}`, status: 400, code: api.CodeMalformed, detail: "behind"},
		"noise behind it":   {path: "/sort", body: `{"keys":[1]} x`, status: 400, code: api.CodeMalformed, detail: "invalid character"},
		"a misspelt name":   {path: "/sort", body: `{"keyz":[1]}`, status: 400, code: api.CodeMalformed, detail: "keyz"},
		"no keys":           {path: "/sort", body: `{}`, status: 400, code: api.CodeMalformed, detail: "no keys"},
		"a key below zero":  {path: "/sort", body: `{"keys":[-1]}`, status: 400, code: api.CodeMalformed, detail: "-1"},
		"a key of 33 bits":  {path: "/sort", body: `{"keys":[4294967296]}`, status: 400, code: api.CodeMalformed, detail: "4294967296"},
		"too many rows":     {path: "/sort", body: keys(101), status: 413, code: api.CodeTooLarge, detail: "101 rows, at most 100"},
		"too many bytes":    {path: "/sort", body: keys(2100), status: 413, code: api.CodeTooLarge, detail: "4096 bytes"},
		"many bytes behind": {path: "/sort", body: `{"keys":[1]}` + strings.Repeat(" ", 5000), status: 413, code: api.CodeTooLarge, detail: "4096 bytes"},
		"a bad timeout":     {path: "/sort", body: keys(1), header: []string{api.HeaderTimeout, "soon"}, status: 400, code: api.CodeMalformed, detail: "soon"},
		"a timeout of zero": {path: "/sort", body: keys(1), header: []string{api.HeaderTimeout, "0s"}, status: 400, code: api.CodeMalformed, detail: "0s"},
		"a wide join":       {path: "/join", body: `{"left":[1],"right_keys":[1` + strings.Repeat(",1", 100) + `]}`, status: 413, code: api.CodeTooLarge, detail: "right_keys: 101 rows"},
		"unequal columns":   {path: "/join", body: `{"left":[1],"right_keys":[1]}`, status: 422, code: api.CodeUnprocessable, detail: "1 keys and 0 values"},
		"a key twice":       {path: "/join", body: `{"left":[1],"right_keys":[1,1],"right_values":[2,3]}`, status: 422, code: api.CodeUnprocessable, detail: "another row"},
	} {
		a := s.post(c.path, c.body, c.header...)
		if p := a.problem(t); a.status != c.status || p.Code != c.code || !strings.Contains(p.Detail, c.detail) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	if a := s.get(api.RouteSort); a.status != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", a.status)
	}
}

func TestADeviceWithLessThanItsBudgetIsToldApart(t *testing.T) {
	s := start(t, setup{faults: func(f *drivertest.Faults) { f.FailEvery(drivertest.MemCreate, driver.OutOfMemory) }})
	p := s.post(api.RouteSort, keys(10)).problem(t)
	if p.Status != http.StatusServiceUnavailable || p.Code != api.CodeOutOfMemory {
		t.Errorf("%+v", p)
	}
}

func TestALostDeviceIsUnhealthyAndRefusesRequests(t *testing.T) {
	s := start(t, setup{lost: true})
	if a := s.get(api.RouteHealth); a.status != http.StatusOK {
		t.Errorf("before: %d %s", a.status, a.body)
	}
	s.sim.LoseContext(driver.IllegalAddress)
	for range 2 {
		a := s.post(api.RouteSort, keys(10))
		if p := a.problem(t); a.status != http.StatusServiceUnavailable || p.Code != api.CodeUnavailable || a.header.Get("Retry-After") != "" {
			t.Errorf("%d %s %v", a.status, a.body, a.header)
		}
	}
	for _, path := range []string{api.RouteHealth, api.RouteReady} {
		if a := s.get(path); a.status != http.StatusServiceUnavailable || !strings.Contains(string(a.body), "ILLEGAL_ADDRESS") {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

func TestAServiceThatStopsIsHealthyAndNotReady(t *testing.T) {
	s := start(t, setup{})
	if a := s.get(api.RouteReady); a.status != http.StatusOK {
		t.Errorf("before: %d %s", a.status, a.body)
	}
	s.web.Stopping()
	for path, want := range map[string]int{api.RouteReady: 503, api.RouteHealth: 200} {
		if a := s.get(path); a.status != want {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := s.post(api.RouteSort, keys(10)); a.status != http.StatusOK {
		t.Errorf("a request meanwhile: %d %s", a.status, a.body)
	}
}

func TestLimitsThatNothingCouldKeepAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(*web.Limits){
		"body":    func(l *web.Limits) { l.MaxBody = 0 },
		"rows":    func(l *web.Limits) { l.MaxRows = device.MaxRows + 1 },
		"waiting": func(l *web.Limits) { l.Waiting = -1 },
		"timeout": func(l *web.Limits) { l.Timeout = 0 },
	} {
		limits := web.DefaultLimits
		spoil(&limits)
		if limits.Check() == nil {
			t.Errorf("%s: %+v was taken", name, limits)
		}
	}
}
