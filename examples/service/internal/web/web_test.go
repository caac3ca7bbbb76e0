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
	limits := web.DefaultLimits(engine)
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

func (s *service) post(path, form, body string, header ...string) answer {
	s.Helper()
	a, err := s.send(s.Context(), http.MethodPost, path, strings.NewReader(body), append([]string{"Content-Type", form}, header...)...)
	must(s.T, err)
	return a
}

func (s *service) get(path string, header ...string) answer {
	s.Helper()
	a, err := s.send(s.Context(), http.MethodGet, path, http.NoBody, header...)
	must(s.T, err)
	return a
}

// columns are keys in the form of a request, and its answer.
func columns(n int) (body string) {
	return string(api.Append(nil, make([]uint32, n)))
}

// trySort sorts random keys in one of the four forms and says what came back:
// the status, and an error if a result is wrong.
func (s *service) trySort(rng *rand.Rand) (int, error) {
	keys := make([]uint64, 1+rng.IntN(3000))
	kind, mask := api.Uint64, ^uint64(0)
	if rng.IntN(2) == 0 {
		kind, mask = api.Uint32, 1<<32-1
	}
	for i := range keys {
		keys[i] = rng.Uint64() & mask
	}
	want := slices.Sorted(slices.Values(keys))
	var a answer
	var got api.SortResponse[uint64]
	var err error
	if rng.IntN(2) == 0 {
		text, _ := json.Marshal(api.SortRequest[uint64]{Type: kind, Keys: keys})
		a, err = s.send(s.Context(), http.MethodPost, api.RouteSort, bytes.NewReader(text), "Content-Type", api.JSON)
		if err != nil || a.status != http.StatusOK {
			return a.status, err
		}
		err = json.Unmarshal(a.body, &got)
	} else {
		a, got.Keys, err = s.sortBinary(kind, keys)
	}
	if err == nil && a.status == http.StatusOK && !slices.Equal(got.Keys, want) {
		err = fmt.Errorf("%d %s keys came back in a wrong order", len(keys), kind)
	}
	return a.status, err
}

func (s *service) sortBinary(kind api.Type, keys []uint64) (answer, []uint64, error) {
	body := api.Append(nil, keys)
	if kind == api.Uint32 {
		short := make([]uint32, len(keys))
		for i, k := range keys {
			short[i] = uint32(k)
		}
		body = api.Append(nil, short)
	}
	a, err := s.send(s.Context(), http.MethodPost, api.RouteSort+"?type="+string(kind), bytes.NewReader(body), "Content-Type", api.Binary)
	if err != nil || a.status != http.StatusOK {
		return a, nil, err
	}
	if kind == api.Uint64 {
		got, err := api.Values[uint64](a.body)
		return a, got, err
	}
	short, err := api.Values[uint32](a.body)
	var got []uint64
	for _, k := range short {
		got = append(got, uint64(k))
	}
	return a, got, err
}

// tryJoin joins random tables in one of the two forms.
func (s *service) tryJoin(rng *rand.Rand) (int, error) {
	request, want := randomTables(rng)
	var body []byte
	form, path := api.JSON, api.RouteJoin
	if rng.IntN(2) == 0 {
		body, _ = json.Marshal(request)
	} else {
		form, path = api.Binary, fmt.Sprintf("%s?left=%d&right=%d", api.RouteJoin, len(request.Left), len(request.RightKeys))
		body = api.Append(api.Append(api.Append(nil, request.Left), request.RightKeys), request.RightValues)
	}
	a, err := s.send(s.Context(), http.MethodPost, path, bytes.NewReader(body), "Content-Type", form)
	if err != nil || a.status != http.StatusOK {
		return a.status, err
	}
	var got []uint32
	if form == api.Binary {
		got, err = api.Values[uint32](a.body)
	} else {
		var response api.JoinResponse
		err = json.Unmarshal(a.body, &response)
		for _, v := range response.Values {
			if v == nil {
				got = append(got, api.NoPartner)
			} else {
				got = append(got, *v)
			}
		}
	}
	if err == nil && !slices.Equal(got, want) {
		err = fmt.Errorf("%d rows were joined wrongly with %d", len(request.Left), len(request.RightKeys))
	}
	return a.status, err
}

func randomTables(rng *rand.Rand) (request api.JoinRequest, want []uint32) {
	for i := range uint32(1 + rng.IntN(1000)) {
		request.RightKeys, request.RightValues = append(request.RightKeys, 3*i), append(request.RightValues, rng.Uint32()>>1)
	}
	for range 1 + rng.IntN(3000) {
		k := rng.Uint32N(4000)
		v := api.NoPartner
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

func TestManyRequestsAtATimeAreAllRight(t *testing.T) {
	s := start(t, setup{patience: time.Second})
	if got := s.crowd(16, 12); got[http.StatusOK] != 16*12 {
		t.Errorf("answers by status: %v", got)
	}
}

// With memory for about two requests some are refused, and the others are
// right all the same.
func TestWithLittleMemoryRequestsAreRightOrRefused(t *testing.T) {
	s := start(t, setup{stack: fencepost.Config{Budget: 160 << 10, Guard: "off"}})
	got := s.crowd(16, 12)
	if got[http.StatusOK] == 0 || got[http.StatusServiceUnavailable] == 0 || got[http.StatusOK]+got[http.StatusServiceUnavailable] != 16*12 {
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
	a := s.post(api.RouteSort, api.Binary, columns(50_000))
	p := a.problem(t)
	if a.status != http.StatusServiceUnavailable || p.Code != api.CodeOutOfBudget || a.header.Get("Retry-After") != "1" || p.TraceID == "" {
		t.Errorf("%d %s, headers %v", a.status, a.body, a.header)
	}
	want := api.Memory{Asked: device.SortBytes(50_000, 4), Remaining: limit - 900<<10, Limit: limit, Live: 700 << 10, Claimed: 200 << 10,
		Holders: []api.Holder{{Tag: "test.hog", State: "live", Bytes: 700 << 10, Blocks: 1},
			{Tag: "test.claim", State: "claimed", Bytes: 200 << 10, Blocks: 1}}}
	if p.Memory == nil || fmt.Sprint(*p.Memory) != fmt.Sprint(want) {
		t.Errorf("memory:\ngot  %+v\nwant %+v", p.Memory, want)
	}
	p = s.post(api.RouteSort, api.Binary, columns(500_000)).problem(t)
	if p.Status != http.StatusRequestEntityTooLarge || p.Code != api.CodeExceedsBudget || p.Memory == nil {
		t.Errorf("what can never fit: %+v", p)
	}
	must(t, s.rt.ReleaseClaim(t.Context(), claim.ID))
	must(t, hog.Free(t.Context()))
	must(t, lease.Release())
	if a := s.post(api.RouteSort, api.Binary, columns(50_000)); a.status != http.StatusOK {
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
		a, err := s.send(ctx, http.MethodPost, api.RouteSort, strings.NewReader(columns(100)), "Content-Type", api.Binary)
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
	s := start(t, setup{limits: func(l *web.Limits) { l.Turns, l.Waiting, l.RetryAfter = 1, 1, 1500*time.Millisecond }})
	release := s.hang()
	first, second := s.background(t.Context()), s.background(t.Context())
	s.eventually("both are inside", s.inFlight(2))
	a := s.post(api.RouteSort, api.Binary, columns(1))
	if p := a.problem(t); a.status != http.StatusTooManyRequests || p.Code != api.CodeTooMany || a.header.Get("Retry-After") != "2" {
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
	s := start(t, setup{limits: func(l *web.Limits) { l.Turns, l.Timeout = 1, time.Hour }})
	release := s.hang()
	atDevice := s.background(t.Context())
	s.eventually("it is at the device", func() bool { return s.rt.Stats().Live.Blocks == 3 })
	// This one asks for less, and waits for its turn only: it is told first.
	p := s.post(api.RouteSort, api.Binary, columns(1), api.HeaderTimeout, "50ms").problem(t)
	if p.Status != http.StatusGatewayTimeout || p.Code != api.CodeDeadline || len(atDevice) != 0 {
		t.Errorf("waiting for a turn: %+v; %d told before it", p, len(atDevice))
	}
	release()
	if a := <-atDevice; a.status != http.StatusOK {
		t.Errorf("with an hour at the device: %d %s", a.status, a.body)
	}
	release = s.hang()
	if p := s.post(api.RouteSort, api.Binary, columns(100), api.HeaderTimeout, "500ms").problem(t); p.Status != http.StatusGatewayTimeout || p.Code != api.CodeDeadline {
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
	s := start(t, setup{limits: func(l *web.Limits) { l.Turns, l.Waiting, l.Timeout = 1, 0, time.Minute }})
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	must(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST /sort HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\n%s: 500ms\r\nContent-Length: 400\r\nConnection: close\r\n\r\n1234", api.Binary, api.HeaderTimeout)
	must(t, err)
	must(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	text, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 408 ") || !strings.Contains(string(text), string(api.CodeTooSlow)) {
		t.Errorf("%v: %s", err, text)
	}
	if a := s.post(api.RouteSort, api.Binary, columns(10)); a.status != http.StatusOK {
		t.Errorf("the next: %d %s", a.status, a.body)
	}
}

// The bound on the upload must not outlive it: a request that was read in time
// may take longer at the device than the rest of the connection's reads.
func TestAConnectionOutlivesItsRequestsDeadlines(t *testing.T) {
	s := start(t, setup{limits: func(l *web.Limits) { l.Timeout = time.Minute }})
	s.eventually("half a second is enough for a request", func() bool {
		return s.post(api.RouteSort, api.Binary, columns(10), api.HeaderTimeout, "500ms").status == http.StatusOK
	})
	time.Sleep(600 * time.Millisecond)
	if a := s.post(api.RouteSort, api.Binary, columns(10)); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestWhatIsNoRequestIsRefusedWithAReason(t *testing.T) {
	s := start(t, setup{limits: func(l *web.Limits) { l.MaxBody, l.MaxRows = 4096, 100 }})
	for name, c := range map[string]struct {
		path, form, body string
		header           []string
		status           int
		code             api.Code
		detail           string
	}{
		"no type":             {path: "/sort", form: "", body: "[]", status: 415, code: api.CodeUnsupportedType, detail: "application/octet-stream"},
		"another type":        {path: "/sort", form: "text/csv", body: "1,2", status: 415, code: api.CodeUnsupportedType, detail: "text/csv"},
		"no JSON":             {path: "/sort", form: api.JSON, body: "keys", status: 400, code: api.CodeMalformed, detail: "invalid character"},
		"nothing":             {path: "/sort", form: api.JSON, body: "", status: 400, code: api.CodeMalformed, detail: "too early"},
		"cut off":             {path: "/sort", form: api.JSON, body: `{"keys":[1,2`, status: 400, code: api.CodeMalformed, detail: "too early"},
		"more behind it":      {path: "/sort", form: api.JSON, body: `{"keys":[1]} {}`, status: 400, code: api.CodeMalformed, detail: "behind"},
		"a misspelt name":     {path: "/sort", form: api.JSON, body: `{"keyz":[1]}`, status: 400, code: api.CodeMalformed, detail: "keyz"},
		"no keys":             {path: "/sort", form: api.JSON, body: `{}`, status: 400, code: api.CodeMalformed, detail: "no keys"},
		"a key below zero":    {path: "/sort", form: api.JSON, body: `{"keys":[-1]}`, status: 400, code: api.CodeMalformed, detail: "-1"},
		"a key of 33 bits":    {path: "/sort", form: api.JSON, body: `{"keys":[4294967296]}`, status: 400, code: api.CodeMalformed, detail: "4294967296"},
		"a key of 65 bits":    {path: "/sort", form: api.JSON, body: `{"type":"uint64","keys":[18446744073709551616]}`, status: 400, code: api.CodeMalformed, detail: "18446744073709551616"},
		"an unknown type":     {path: "/sort", form: api.JSON, body: `{"type":"float64","keys":[1]}`, status: 400, code: api.CodeMalformed, detail: "float64"},
		"half a key":          {path: "/sort", form: api.Binary, body: "12345", status: 400, code: api.CodeMalformed, detail: "5 bytes"},
		"half a long key":     {path: "/sort?type=uint64", form: api.Binary, body: "1234", status: 400, code: api.CodeMalformed, detail: "4 bytes"},
		"too many rows":       {path: "/sort", form: api.Binary, body: columns(101), status: 413, code: api.CodeTooLarge, detail: "101 rows, at most 100"},
		"too many bytes":      {path: "/sort", form: api.Binary, body: columns(1025), status: 413, code: api.CodeTooLarge, detail: "4096 bytes"},
		"a bad timeout":       {path: "/sort", form: api.Binary, body: "1234", header: []string{api.HeaderTimeout, "soon"}, status: 400, code: api.CodeMalformed, detail: "soon"},
		"a timeout of zero":   {path: "/sort", form: api.Binary, body: "1234", header: []string{api.HeaderTimeout, "0s"}, status: 400, code: api.CodeMalformed, detail: "0s"},
		"a join without size": {path: "/join", form: api.Binary, body: "1234", status: 400, code: api.CodeMalformed, detail: "left=ROWS"},
		"a join of less":      {path: "/join?left=1&right=1", form: api.Binary, body: "1234", status: 400, code: api.CodeMalformed, detail: "make 3"},
		"a join of too many":  {path: "/join?left=0&right=101", form: api.Binary, body: columns(202), status: 413, code: api.CodeTooLarge, detail: "right_keys: 101 rows"},
		"an enormous join":    {path: "/join?left=4294967295&right=4294967295", form: api.Binary, body: "1234", status: 400, code: api.CodeMalformed, detail: "make"},
		"unequal columns":     {path: "/join", form: api.JSON, body: `{"left":[1],"right_keys":[1]}`, status: 422, code: api.CodeUnprocessable, detail: "1 keys and 0 values"},
		"a key twice":         {path: "/join", form: api.JSON, body: `{"left":[1],"right_keys":[1,1],"right_values":[2,3]}`, status: 422, code: api.CodeUnprocessable, detail: "another row"},
	} {
		a := s.post(c.path, c.form, c.body, c.header...)
		if p := a.problem(t); a.status != c.status || p.Code != c.code || !strings.Contains(p.Detail, c.detail) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	if a := s.get(api.RouteSort); a.status != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", a.status)
	}
}

func TestADeviceWithLessThanItsBudgetIsToldApart(t *testing.T) {
	s := start(t, setup{faults: func(f *drivertest.Faults) { f.FailEvery(drivertest.MemAllocAsync, driver.OutOfMemory) }})
	p := s.post(api.RouteSort, api.Binary, columns(10)).problem(t)
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
		a := s.post(api.RouteSort, api.Binary, columns(10))
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
	if a := s.post(api.RouteSort, api.Binary, columns(10)); a.status != http.StatusOK {
		t.Errorf("a request meanwhile: %d %s", a.status, a.body)
	}
}

func TestLimitsThatNothingCouldKeepAreRefused(t *testing.T) {
	s := start(t, setup{})
	engine, err := device.New(device.Config{Runtime: s.rt, TracerProvider: sdktrace.NewTracerProvider()})
	must(t, err)
	for name, spoil := range map[string]func(*web.Limits){
		"body":    func(l *web.Limits) { l.MaxBody = 0 },
		"rows":    func(l *web.Limits) { l.MaxRows = device.MaxRows + 1 },
		"turns":   func(l *web.Limits) { l.Turns = engine.MaxJobs() + 1 },
		"waiting": func(l *web.Limits) { l.Waiting = -1 },
		"timeout": func(l *web.Limits) { l.Timeout = 0 },
		"retry":   func(l *web.Limits) { l.RetryAfter = time.Millisecond },
	} {
		limits := web.DefaultLimits(engine)
		spoil(&limits)
		if _, err := web.New(web.Config{Runtime: s.rt, Engine: engine, TracerProvider: sdktrace.NewTracerProvider(), Limits: limits}); err == nil {
			t.Errorf("%s: %+v was taken", name, limits)
		}
	}
}
