package explain_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
	"github.com/fencepost-gpu/fencepost/telemetry/explain"
)

// service is a runtime on a device of virtual time, whose kernels take as long as they are told.
type service struct {
	*testing.T
	device   *sim.Device
	busy     driver.Function
	rt       *fencepost.Runtime
	provider *sdktrace.TracerProvider
	leases   []*cuda.Lease
	blocks   []core.Block
}

func newService(t *testing.T, seed uint64, streams int, change ...func(*fencepost.Config)) *service {
	device := must.Get(sim.Open(sim.Config{Bytes: 64 << 20, Schedule: sim.Seeded(seed)}))(t)
	must.Do(t, device.RegisterModule("busy", sim.Kernel{Name: "busy", Run: func(*sim.Exec) {},
		Takes: func(a sim.Args) time.Duration { return time.Duration(a.U64(0)) }}))
	s := &service{T: t, device: device, busy: must.Get(device.ModuleFunction(must.Get(device.ModuleLoad(driver.Image{Name: "busy"}))(t), "busy"))(t),
		provider: sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())))}
	cfg := fencepost.Config{Driver: device, TracerProvider: s.provider, Budget: 32 << 20, Guard: "off"}
	cfg.Pool.ReapInterval, cfg.Async.ReapInterval = -1, -1 // nothing calls the device beside the test
	for _, f := range change {
		f(&cfg)
	}
	s.rt = must.Get(fencepost.Open(t.Context(), cfg))(t)
	for range streams {
		s.leases = append(s.leases, must.Get(s.rt.Streams().Acquire(t.Context(), "service"))(t))
	}
	t.Cleanup(func() {
		for _, b := range s.blocks {
			must.Get(s.rt.Deallocate(context.Background(), b.ID))(t)
		}
		for _, l := range s.leases {
			must.Do(t, l.Release())
		}
		must.Get(s.rt.Close(context.Background()))(t)
		must.Do(t, device.Close())
	})
	return s
}

func (s *service) alloc(on int, tag core.Tag) core.Block {
	s.Helper()
	b := must.Get(s.rt.Allocate(s.Context(), core.Request{Bytes: 4096, Stream: s.leases[on].ID(), Tag: tag}))(s)
	s.blocks = append(s.blocks, b)
	return b
}

// request is a trace of its own.
type request struct {
	*service
	ctx   context.Context
	trace [16]byte
}

func (s *service) request() request {
	ctx, span := s.provider.Tracer("test").Start(s.Context(), "request", trace.WithNewRoot())
	defer span.End()
	return request{s, ctx, span.SpanContext().TraceID()}
}

func (r request) launch(name string, on int, takes time.Duration, uses ...core.Use) {
	r.Helper()
	must.Do(r, r.rt.LaunchNamed(r.ctx, name, r.leases[on].ID(), uses, func(context.Context) error {
		return r.device.Launch(&driver.Launch{Function: r.busy, Stream: r.leases[on].Handle(), Args: []driver.Arg{driver.U64(uint64(takes))}})
	}))
}

func (s *service) explain(r request) explain.Explanation {
	s.Helper()
	must.Do(s, s.device.Synchronize())
	must.Do(s, s.rt.ReapPending(s.Context()))
	e, err := s.rt.Explain(r.trace)
	if err != nil {
		s.Fatal(err)
	}
	s.isRight(&e)
	return e
}

// isRight checks what holds for each path: its steps follow each other from the beginning to the end.
func (s *service) isRight(e *explain.Explanation) {
	s.Helper()
	at := e.From
	for i := range e.Steps {
		step := &e.Steps[i]
		if gap := step.From.Sub(at); gap.Abs() > explain.Resolution || step.Took() < 0 {
			s.Errorf("step %d begins %v after the one before, and takes %v", i, gap, step.Took())
		}
		at = step.To
	}
	if !at.Equal(e.To) {
		s.Errorf("the path ends %v before the request does", e.To.Sub(at))
	}
}

func use(b core.Block, a core.Access) core.Use { return core.Use{Block: b.ID, Access: a} }

// What a host does takes the simulated device a few microseconds of virtual time.
const hostTakes = 300 * time.Microsecond

// Among requests that have nothing to do with each other one is held up by another, in one way or the other: the
// explanation names the launch, the request, the block and the reason, and how long it was. The history's log explains the same.
func TestTheGuiltyWaitIsNamed(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { namesTheGuilty(t, seed) })
	}
}

func namesTheGuilty(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	s := newService(t, seed, 8)
	ms := func(from, to int) time.Duration {
		return time.Duration(from*1000+random.IntN((to-from)*1000)) * time.Microsecond
	}
	index := s.alloc(0, "index.postings")
	others := []core.Block{s.alloc(4, "other"), s.alloc(5, "other"), s.alloc(6, "decoy")}
	noise := func() {
		for range random.IntN(4) {
			on := 4 + random.IntN(2)
			s.request().launch("noise", on, ms(1, 4), use(others[on-4], core.ReadWrite))
		}
	}
	noise()
	guilty, victim := s.request(), s.request()
	takes := ms(12, 30)
	kind := explain.Held
	accesses := [][2]core.Access{{core.Write, core.Read}, {core.Read, core.Write}, {core.Write, core.Write}, {core.ReadWrite, core.ReadWrite}}[random.IntN(4)]
	scene := random.IntN(5)
	guilty.launch("merge", 1, takes, use(index, accesses[0]))
	noise()
	if random.IntN(2) == 0 { // somebody else holds the victim up for less
		s.request().launch("decoy", 6, ms(1, 3), use(others[2], core.Write))
		victim.launch("first", 2, ms(1, 2), use(others[2], core.Read))
	}
	switch scene {
	case 0: // at once
		victim.launch("query", 2, ms(1, 2), use(index, accesses[1]))
	case 1: // what the victim does then is on another stream
		mine := s.alloc(2, "mine")
		victim.launch("query", 2, ms(1, 2), use(index, accesses[1]), use(mine, core.Write))
		victim.launch("rank", 3, ms(1, 2), use(mine, core.Read))
	case 2: // behind it, on its stream
		kind = explain.Queued
		victim.launch("query", 1, ms(1, 2))
	case 3: // behind it on its stream, and others in between
		kind = explain.Queued
		s.request().launch("between", 1, ms(1, 2))
		victim.launch("query", 1, ms(1, 2))
	case 4: // no contention: the victim is on its own
		victim = s.request()
		mine := s.alloc(2, "mine")
		victim.launch("query", 3, ms(1, 2), use(mine, core.Write))
		victim.launch("rank", 7, ms(1, 2), use(mine, core.Read))
	}
	noise()
	e := s.explain(victim)
	worst := e.Worst()
	if scene == 4 {
		// the ready point of "mine" is behind what ran on its stream: the first launch of another victim, at most
		if worst != nil && worst.For.Name != "first" && worst.For.Name != "decoy" || !strings.Contains(e.Sentence(), "no other") && worst == nil {
			t.Fatalf("without contention: %s", e.String())
		}
		return
	}
	if worst == nil || worst.Kind != kind || worst.For.Name != "merge" || worst.For.ID == 0 || worst.For.Span.TraceID != guilty.trace {
		t.Fatalf("scene %d: %s", scene, e.String())
	}
	if off := worst.Took() - takes; off > explain.Resolution || off < -6*time.Millisecond { // the victim may have come later
		t.Errorf("it was held up for %v by a launch of %v", worst.Took(), takes)
	}
	says := e.Sentence()
	wants := []string{`"merge"`, fmt.Sprintf("request %x", guilty.trace)}
	if kind == explain.Held {
		if w := worst.Wait; w.Tag != "index.postings" || w.Generation != index.ID.Generation || w.Access != accesses[0] || w.Own != accesses[1] {
			t.Errorf("it was held up because of %+v", *w)
		}
		wants = append(wants, `"index.postings"`, "(data)")
	}
	for _, want := range wants {
		if !strings.Contains(says, want) {
			t.Errorf("no %s in: %s", want, says)
		}
	}
	answer := httptest.NewRecorder()
	s.rt.HistoryHandler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil))
	events, err := alloctrace.ReadEvents("history", bytes.NewReader(answer.Body.Bytes()))
	must.Do(t, err)
	last := map[int]time.Time{}
	for _, event := range events {
		if w := event.Device; w != nil {
			if w.Ended.Before(last[w.On]) {
				t.Errorf("launch %d is in the history behind what ended later on its stream", w.Launch)
			}
			last[w.On] = w.Ended
		}
	}
	device := explain.New(events)
	read, err := device.Explain(victim.trace)
	must.Do(t, err)
	if diff := cmp.Diff(e, read, cmpopts.EquateApproxTime(time.Nanosecond)); diff != "" {
		t.Error(diff)
	}
	if list := device.MostHeldUp(1); len(list) != 1 || list[0].Lost < worst.Took() {
		t.Errorf("of all requests most held up is %+v", list)
	}
}

// What a request waits for of its own work is not another's fault: the path goes on with it.
func TestAPathGoesThroughTheRequestsOwnWork(t *testing.T) {
	s := newService(t, 3, 3)
	a, b := s.alloc(0, "a"), s.alloc(1, "b")
	r := s.request()
	r.launch("one", 0, 3*time.Millisecond, use(a, core.Write))
	r.launch("two", 1, 9*time.Millisecond, use(b, core.Write))
	r.launch("three", 2, 2*time.Millisecond, use(a, core.Read), use(b, core.Read))
	must.Do(t, s.device.Synchronize())
	r.launch("four", 0, time.Millisecond)
	e := s.explain(r)
	var ran []string
	for _, step := range e.Steps {
		if step.Kind == explain.Ran {
			ran = append(ran, step.Launch.Name)
		}
	}
	if diff := cmp.Diff([]string{"two", "three", "four"}, ran); diff != "" || e.Worst() != nil || e.Launches != 4 {
		t.Errorf("%s%s", diff, e.String())
	}
	if all, others := e.Spent(explain.Ran); (all-12*time.Millisecond).Abs() > hostTakes || others != 0 {
		t.Errorf("it ran %v, for others %v", all, others)
	}
	if says := e.String(); !strings.Contains(says, "waited for no other request's work") || !strings.Contains(says, "4 timed launches") {
		t.Error(says)
	}
}

// A launch that waits for memory to be ready is told by what ran on that stream before.
func TestMemoryThatIsNotReadyNamesWhatIsInFront(t *testing.T) {
	s := newService(t, 5, 2)
	other, r := s.request(), s.request()
	other.launch("train", 0, 7*time.Millisecond)
	fresh := s.alloc(0, "fresh")
	r.launch("fill", 1, time.Millisecond, use(fresh, core.Write))
	e := s.explain(r)
	worst := e.Worst()
	if worst == nil || worst.For.Name != "train" || worst.Wait.Tag != "fresh" || !strings.Contains(e.Sentence(), "(memory used again)") {
		t.Fatal(e.String())
	}
}

// A request whose memory another stream's launch still uses waits for that, on its own stream and for its launch.
func TestMemoryThatIsUsedAgainNamesTheLaunchThatUsedIt(t *testing.T) {
	for seed := range uint64(10) {
		s := newService(t, seed, 2, func(cfg *fencepost.Config) { cfg.Pool.Limit = sim.Granule })
		other, r := s.request(), s.request()
		whole := must.Get(s.rt.Allocate(other.ctx, core.Request{Bytes: sim.Granule, Stream: s.leases[0].ID(), Tag: "train.batch"}))(t)
		other.launch("train", 0, 7*time.Millisecond, use(whole, core.Write))
		must.Get(s.rt.Deallocate(other.ctx, whole.ID))(t)
		b := must.Get(s.rt.Allocate(r.ctx, core.Request{Bytes: sim.Granule, Stream: s.leases[1].ID(), Tag: "query.batch"}))(t)
		s.blocks = append(s.blocks, b)
		r.launch("query", 1, time.Millisecond, use(b, core.Write))
		e := s.explain(r)
		worst := e.Worst()
		if worst == nil || worst.Kind != explain.Held || worst.Launch.Memory != "query.batch" || worst.For.Name != "train" || worst.For.ID == 0 || worst.For.Span.TraceID != other.trace {
			t.Fatal(e.String())
		}
		if off := worst.Took() - 7*time.Millisecond; off.Abs() > hostTakes {
			t.Errorf("held up for %v", worst.Took())
		}
		if says := e.Sentence(); !strings.Contains(says, `for launch`) || !strings.Contains(says, `"train"`) || !strings.Contains(says, `used again for "query.batch"`) {
			t.Error(says)
		}
	}
}

// A launch stands behind one that itself waits: both are told.
func TestWhatIsInFrontMayWaitItself(t *testing.T) {
	s := newService(t, 2, 2)
	index := s.alloc(0, "index")
	guilty, front, r := s.request(), s.request(), s.request()
	guilty.launch("merge", 0, 9*time.Millisecond, use(index, core.Write))
	front.launch("front", 1, time.Millisecond, use(index, core.Read))
	r.launch("query", 1, time.Millisecond)
	e := s.explain(r)
	worst := e.Worst()
	if worst == nil || worst.Kind != explain.Queued || worst.For.Name != "front" || worst.Wait == nil || worst.Wait.Launch != "merge" || (worst.Took()-10*time.Millisecond).Abs() > hostTakes {
		t.Fatal(e.String())
	}
	if says := e.Sentence(); !strings.Contains(says, `behind launch`) || !strings.Contains(says, `itself waited 9`) || !strings.Contains(says, `"merge" of request`) {
		t.Error(says)
	}
}

// A lease of a stream begins behind what the lease before has there still to do.
func TestALeaseStandsBehindTheOneBefore(t *testing.T) {
	s := newService(t, 6, 1)
	guilty, r := s.request(), s.request()
	guilty.launch("merge", 0, 9*time.Millisecond)
	must.Do(t, s.leases[0].Release())
	s.leases[0] = must.Get(s.rt.Streams().Acquire(t.Context(), "service"))(t)
	r.launch("query", 0, time.Millisecond)
	e := s.explain(r)
	if worst := e.Worst(); worst == nil || worst.Kind != explain.Queued || worst.For.Name != "merge" || worst.For.Stream == worst.Launch.Stream {
		t.Fatal(e.String())
	}
}

func TestATraceThatIsNotKnownIsAnError(t *testing.T) {
	s := newService(t, 1, 1)
	if _, err := s.rt.Explain([16]byte{1}); !errors.Is(err, explain.ErrUnknownTrace) {
		t.Error(err)
	}
	var none *fencepost.Runtime
	if _, err := none.Explain([16]byte{1}); err == nil {
		t.Error("a runtime that is nil explains something")
	}
}

// A log of the level Uses explains what the process does.
func TestALogExplainsAsTheProcessDoes(t *testing.T) {
	var file bytes.Buffer
	log := logging.NewJSONSink(&file, logging.Queue{})
	s := newService(t, 8, 2, func(cfg *fencepost.Config) { cfg.LogLevel, cfg.LogSinks = logging.Uses, []logging.Sink{log} })
	index := s.alloc(0, "index")
	s.request().launch("merge", 0, 9*time.Millisecond, use(index, core.Write))
	r := s.request()
	r.launch("query", 1, time.Millisecond, use(index, core.Read))
	e := s.explain(r)
	must.Do(t, log.Flush(t.Context()))
	events, err := alloctrace.ReadEvents("log", bytes.NewReader(file.Bytes()))
	must.Do(t, err)
	read, err := explain.New(events).Explain(r.trace)
	must.Do(t, err)
	if diff := cmp.Diff(e, read, cmpopts.EquateApproxTime(time.Nanosecond)); diff != "" || e.Worst() == nil {
		t.Error(diff)
	}
}

// What the device cannot be made to do in a test at will, in the words of an explanation.
func TestAnExplanationSaysWhatItCannotTellApart(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	mine := core.SpanRef{TraceID: [16]byte{1}, SpanID: [8]byte{1}}
	query := func(change func(*oplog.DeviceWork)) oplog.Event {
		w := oplog.DeviceWork{Launch: 2, Name: "query", Stream: 2, On: 1, Span: mine, Prepared: at(0), Reached: at(0), Began: at(20), Ended: at(21), Bound: 3 * time.Microsecond}
		change(&w)
		return w.Event(0)
	}
	waits := func(wait oplog.DeviceWait) func(*oplog.DeviceWork) {
		wait.Held, wait.Generation, wait.Tag, wait.Stream = 20*time.Millisecond, 5, "index", 1
		return func(w *oplog.DeviceWork) { w.Waits = []oplog.DeviceWait{wait} }
	}
	front := oplog.DeviceWork{Launch: 1, Name: "front", Stream: 1, On: 1, Reached: at(-9), Began: at(-9), Ended: at(19)}
	onFirst := front // the device's first stream, under another lease than what is waited for
	onFirst.Stream, onFirst.On = 8, 0
	early := front
	early.Ended = at(-1)
	for _, c := range []struct {
		what   string
		events []oplog.Event
		want   string
	}{
		{"the fifth wait and later", []oplog.Event{query(func(w *oplog.DeviceWork) {
			w.Unattributed, w.Waits = 20*time.Millisecond, []oplog.DeviceWait{{For: core.WaitRef{Launch: 8}, Span: mine, Held: -1}, {For: core.WaitRef{Launch: 9}, Held: -1}}
		})}, "waited 20ms of that for several launches, the fifth and later"},
		{"a use without a launch", []oplog.Event{query(waits(oplog.DeviceWait{For: core.WaitRef{Block: 5}, Access: core.ReadWrite, Own: core.Write}))}, "of which a use there was recorded (data)"},
		{"two writes", []oplog.Event{query(waits(oplog.DeviceWait{For: core.WaitRef{Launch: 9}, Access: core.Write, Own: core.Write}))}, `it writes what launch 2 "query" writes, too (data)`},
		{"a write and a read", []oplog.Event{query(waits(oplog.DeviceWait{For: core.WaitRef{Launch: 9}, Access: core.Read, Own: core.Write}))}, `it reads what launch 2 "query" writes (data)`},
		{"memory to be ready behind a launch", []oplog.Event{front.Event(0), query(waits(oplog.DeviceWait{For: core.WaitRef{Block: 5}, Access: core.Write, Own: core.Write}))}, `for launch 1 "front" of a request that is not sampled`},
		{"behind none that is known", []oplog.Event{early.Event(0), query(waits(oplog.DeviceWait{For: core.WaitRef{Block: 5}, Access: core.Write, Own: core.Write}))}, "for work that was not timed on stream 1"},
		{"a lease of which nothing is known", []oplog.Event{onFirst.Event(0), query(waits(oplog.DeviceWait{For: core.WaitRef{Block: 5}, Access: core.Write, Own: core.Write}))}, "for work that was not timed on stream 1"},
		{"the fifth wait and later, of its own work", []oplog.Event{query(func(w *oplog.DeviceWork) {
			w.Unattributed, w.Waits = 20*time.Millisecond, []oplog.DeviceWait{{For: core.WaitRef{Launch: 9}, Span: mine, Held: -1}}
		})}, "waited for no other request's work"},
		{"another device's stream of the same number", []oplog.Event{front.Event(1), query(func(w *oplog.DeviceWork) { w.Reached, w.Began = at(20), at(20) })}, "waited for no other request's work on the device: of 21ms its own launches ran 1ms, and stood 20ms"},
		{"the stream of the same number", []oplog.Event{front.Event(0), query(func(w *oplog.DeviceWork) { w.Reached, w.Began = at(20), at(20) })}, `waited 19ms of that behind launch 1 "front"`},
	} {
		e, err := explain.New(c.events).Explain(mine.TraceID)
		if err != nil || !strings.Contains(e.Sentence(), c.want) || e.Bound != 3*time.Microsecond {
			t.Errorf("%s: %v, bound %v: no %q in:\n%s", c.what, err, e.Bound, c.want, e.String())
		}
	}
}

// Whatever a log says, its traces are explained, and no path takes a launch twice.
func FuzzExplain(f *testing.F) {
	f.Add([]byte("0123456789abcdefghijklmnopqrstuvwxyz0123456789"))
	f.Fuzz(func(t *testing.T, data []byte) {
		start := time.Unix(1_700_000_000, 0)
		var events []oplog.Event
		for ; len(data) >= 8; data = data[8:] {
			at := start.Add(time.Duration(data[0]) * 20 * time.Microsecond)
			w := &oplog.DeviceWork{Launch: uint64(data[1] % 8), Name: "n", Stream: core.StreamID(data[2] % 9), On: int(data[2] % 3), Span: core.SpanRef{TraceID: [16]byte{data[3] % 3}, SpanID: [8]byte{data[3] % 2}},
				Prepared: at, Reached: at.Add(time.Duration(data[4]) * time.Microsecond), Began: at.Add(time.Duration(data[5]) * 10 * time.Microsecond),
				Ended: at.Add(time.Duration(data[6]) * 20 * time.Microsecond), Unattributed: time.Duration(data[7]%3) * 100 * time.Microsecond}
			for i := range data[7] % 4 {
				w.Waits = append(w.Waits, oplog.DeviceWait{Stream: core.StreamID(i), For: core.WaitRef{Launch: uint64(data[i] % 8)}, Span: core.SpanRef{TraceID: [16]byte{data[i] % 3}, SpanID: [8]byte{1}},
					Held: time.Duration(int(data[i+1])-2) * 10 * time.Microsecond})
			}
			events = append(events, w.Event(0))
		}
		device := explain.New(events)
		for _, r := range device.MostHeldUp(10) {
			e, err := device.Explain(r.Trace)
			if err != nil || len(e.String()) == 0 {
				t.Errorf("%v: %q", err, e.String())
			}
			for i := range e.Steps {
				if e.Steps[i].Took() < 0 || i > 0 && e.Steps[i].From.Before(e.Steps[i-1].From) {
					t.Errorf("step %d goes back in time: %s", i, e.String())
				}
			}
		}
	})
}
