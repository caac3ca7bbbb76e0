package servers

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/core/readings"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// The boards are watched for some time, and by hand for an hour:
//
//	go test -run TestTheBoardsSayWhatIsTrue -timeout 2h -args -boards.for 1h -boards.every 15s
var (
	watchFor   = flag.Duration("boards.for", time.Minute, "how long the boards are watched")
	watchEvery = flag.Duration("boards.every", time.Second, "how often each of their panels is asked")
)

// shownPanel is what is looked at of a panel's JSON.
type shownPanel struct {
	Title, Type string
	Targets     []struct{ RefID, Expr string }
	FieldConfig struct{ Defaults struct{ NoValue string } }
	Panels      []shownPanel // of a folded row
}

// watched are the boards that are compared: what operations shows are rates, of
// which the books have none.
var watched = []string{"overview", "guard", "streams", "fleet"}

func panelsOf(t *testing.T, boards ...string) (all []shownPanel) {
	t.Helper()
	for _, b := range boards {
		text, err := os.ReadFile(root + "/dashboards/" + b + ".json")
		must(t, err)
		var board struct{ Panels []shownPanel }
		must(t, json.Unmarshal(text, &board))
		for _, p := range board.Panels {
			if p.Type != "row" {
				all = append(all, p)
			}
			all = append(all, p.Panels...)
		}
	}
	return all
}

// state is what is true of a runtime at one time.
type state struct {
	at      time.Time
	byTag   map[string]float64
	blocks  map[string]float64
	running bool
	ever    float64 // findings, of processes that have ended too
	figures
}

// figures are what the runtime says of itself.
type figures struct {
	stats   core.Stats
	device  metrics.DeviceMemory
	streams readings.StreamStats
	ledger  uint64 // blocks that the guard knows
	found   uint64 // since the process began
	health  string
}

func figuresOf(rt *fencepost.Runtime) figures {
	f := figures{stats: rt.Stats(), device: rt.DeviceMemory(), streams: rt.Streams().Stats(), ledger: rt.Guard().GuardStats().Known,
		found: rt.Findings().Total(), health: rt.Health().State}
	f.streams.OldestAge = 0 // which never stands still
	return f
}

// chronicle is a runtime that holds now more and now less, with what was true
// when. It can end and begin anew at the same address.
type chronicle struct {
	address string
	mu      sync.Mutex
	states  []state
	earlier uint64 // findings of processes that have ended
	stop    func()
}

// step is how long each level is held: longer than a scrape takes.
const step = 3 * time.Second

func (c *chronicle) begin(t *testing.T, resource fencepost.Backend) {
	t.Helper()
	rt, err := fencepost.Open(t.Context(), fencepost.Config{Device: fencepost.Sim, Guard: "ledger", Budget: 64 << 20, Resource: resource,
		Pool: cuda.PoolConfig{Limit: 1 << 30}})
	must(t, err)
	registry := prometheus.NewRegistry()
	registry.MustRegister(rt.Collector())
	held := &holdings{rt: rt, earlier: c.earlier, byTag: map[string]float64{}, blocks: map[string]float64{}}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", c.address)
	must(t, err)
	server := &http.Server{Handler: c.witnessed(promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}), held), ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(listener) }()
	ctx, cancel := context.WithCancel(t.Context())
	var loops sync.WaitGroup
	loops.Go(func() { held.breathe(ctx, t) })
	loops.Go(func() { c.write(ctx, held) })
	c.stop = sync.OnceFunc(func() {
		cancel()
		loops.Wait()
		c.add(state{at: time.Now()})
		c.earlier += rt.Findings().Total()
		_ = server.Close()
		if _, err := rt.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Logf("closing: %v", err)
		}
	})
	t.Cleanup(func() { c.stop() })
}

// holdings are what a runtime was asked for. A change of them and of the
// runtime is one step to whoever looks, or two states that are both true.
type holdings struct {
	rt            *fencepost.Runtime
	earlier       uint64
	mu            sync.Mutex
	byTag, blocks map[string]float64
}

// breathe holds a model, and batches that come and go; the first process frees one twice.
func (h *holdings) breathe(ctx context.Context, t *testing.T) {
	on, err := h.rt.Streams().Acquire(ctx, "chronicle")
	if err != nil {
		t.Errorf("a stream: %v", err)
		return
	}
	defer func() { _ = on.Release() }()
	h.allocate(ctx, t, on, "model", 8<<20)
	for round := 0; ctx.Err() == nil; round++ {
		var batch []core.Block
		for range round%3 + 1 {
			batch = append(batch, h.allocate(ctx, t, on, "batch", uint64(round%4+1)<<20))
		}
		pause(ctx, step)
		for _, b := range batch {
			h.free(ctx, t, b)
		}
		if round == 0 && h.earlier == 0 { // a process that finds as many as the one before cannot be told from it
			if _, err := h.rt.Deallocate(ctx, batch[0].ID); !errors.Is(err, core.ErrUseAfterFree) && ctx.Err() == nil {
				t.Errorf("the second free: %v", err)
			}
		}
		pause(ctx, step)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (h *holdings) allocate(ctx context.Context, t *testing.T, on *cuda.Lease, tag core.Tag, bytes uint64) core.Block {
	h.mu.Lock()
	defer h.mu.Unlock()
	b, err := h.rt.Allocate(ctx, core.Request{Bytes: bytes, Stream: on.ID(), Tag: tag})
	if err != nil && ctx.Err() == nil {
		t.Errorf("%s: %v", tag, err)
	}
	h.byTag[string(tag)] += float64(bytes)
	h.blocks[string(tag)]++
	return b
}

func (h *holdings) free(ctx context.Context, t *testing.T, b core.Block) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, err := h.rt.Deallocate(ctx, b.ID); err != nil && ctx.Err() == nil {
		t.Errorf("a free: %v", err)
	}
	h.byTag[string(b.Tag)] -= float64(b.Requested)
	h.blocks[string(b.Tag)]--
}

// write keeps what is true, every few milliseconds.
func (c *chronicle) write(ctx context.Context, h *holdings) {
	for ctx.Err() == nil {
		h.mu.Lock()
		c.add(h.state())
		h.mu.Unlock()
		pause(ctx, 5*time.Millisecond)
	}
}

// state is what is true now; mu must be held.
func (h *holdings) state() state {
	f := figuresOf(h.rt)
	return state{at: time.Now(), figures: f, ever: float64(h.earlier + f.found), byTag: maps.Clone(h.byTag), blocks: maps.Clone(h.blocks), running: true}
}

// witnessed serves a page of metrics while nothing changes, and keeps what is true
// then: a state may end before write comes to it. What is freed comes back by
// itself; if that was meanwhile, the page is made anew.
func (c *chronicle) witnessed(page http.Handler, h *holdings) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		for {
			before, made := h.state(), httptest.NewRecorder()
			page.ServeHTTP(made, r)
			if figuresOf(h.rt) == before.figures {
				c.add(before)
				maps.Copy(w.Header(), made.Header())
				w.WriteHeader(made.Code)
				_, _ = w.Write(made.Body.Bytes())
				return
			}
		}
	})
}

func (c *chronicle) add(s state) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.states = append(c.states, s)
	if first := slices.IndexFunc(c.states, func(s state) bool { return time.Since(s.at) < peakAge }); first > 10_000 {
		c.states = slices.Delete(c.states, 0, first)
	}
}

// since is what was true at any time since another, and just before it.
func (c *chronicle) since(t time.Time) []state {
	c.mu.Lock()
	defer c.mu.Unlock()
	first, _ := slices.BinarySearchFunc(c.states, t, func(s state, t time.Time) int { return s.at.Compare(t) })
	return slices.Clone(c.states[max(0, first-1):])
}

// truth is what a series may say of a state: one of these.
type truth func(s state, series map[string]string) []float64

func always(v float64) truth { return func(state, map[string]string) []float64 { return []float64{v} } }

func of[N uint64 | int](f func(figures) N) truth {
	return func(s state, _ map[string]string) []float64 { return []float64{float64(f(s.figures))} }
}

// by is a number that a label picks.
func by[N uint64 | int](label string, f func(figures) map[string]N) truth {
	return func(s state, m map[string]string) []float64 { return []float64{float64(f(s.figures)[m[label]])} }
}

// share is of what was charged, or was live if that is more.
func share(limit, taken func(figures) uint64) truth {
	return func(s state, _ map[string]string) []float64 {
		whole := float64(limit(s.figures))
		return []float64{float64(taken(s.figures)) / whole, float64(live(s.figures)) / whole}
	}
}

func ever(s state, _ map[string]string) []float64 { return []float64{s.ever} }

func byTag(s state, m map[string]string) []float64 { return []float64{s.byTag[m["tag"]]} }

func live(f figures) uint64        { return f.stats.Live.Bytes }
func outstanding(f figures) uint64 { return f.stats.Outstanding().Bytes }
func pending(f figures) uint64     { return f.stats.Pending.Bytes }
func budget(f figures) uint64      { return f.stats.Limit }
func poolLimit(f figures) uint64   { return f.stats.OwnPool.Limit }
func found(f figures) uint64       { return f.found }
func total(f figures) uint64       { return f.device.Total }
func free(f figures) uint64        { return f.device.Free }
func held(f figures) uint64        { return f.device.Owned }
func inUse(f figures) uint64       { return f.device.Total - f.device.Free }

func healthNumber(f figures) int {
	return max(0, slices.Index([]string{names.HealthOK, names.HealthDegraded, names.HealthPoisoned, names.HealthClosed}, f.health))
}

func healthStates(f figures) map[string]int { return map[string]int{f.health: 1} }

func deviceShare(s state, _ map[string]string) []float64 {
	return []float64{1 - float64(s.device.Free)/float64(s.device.Total)}
}

func streamStates(f figures) map[string]int {
	return map[string]int{"leased": f.streams.Leased, "idle": f.streams.Idle, "adopted": f.streams.Adopted}
}

func blockStates(f figures) map[string]uint64 {
	return map[string]uint64{"live": f.stats.Live.Blocks, "pending": f.stats.Pending.Blocks, "quarantined": f.stats.Quarantined.Blocks}
}

var (
	budgetShare = share(budget, func(f figures) uint64 { return f.stats.Charged })
	poolShare   = share(poolLimit, func(f figures) uint64 { return f.stats.PoolUsed })
)

// truths say what panels must show, by title and query.
var truths = map[string]truth{
	"Runtimes: A":           of(live),
	"Runtimes: B":           of(live),
	"Runtimes: C":           of(budget),
	"Runtimes: D":           budgetShare,
	"Runtimes: E":           poolShare,
	"Runtimes: F":           of(healthNumber),
	"Health: A":             by("state", healthStates),
	"Memory bugs found: A":  always(0),
	"Memory bugs found: B":  ever,
	"Refused a second: A":   of(func(f figures) uint64 { return f.stats.Refusals }),
	"Fullest: A":            deviceShare,
	"Fullest: B":            budgetShare,
	"Fullest: C":            poolShare,
	"Live memory by tag: A": byTag,
	"Holders: A":            byTag,
	"Holders: B":            byTag,
	"Holders: C":            func(s state, m map[string]string) []float64 { return []float64{s.blocks[m["tag"]]} },
	"Memory by state, and the budget: A": by("state", func(f figures) map[string]uint64 {
		return map[string]uint64{"live": live(f), "quarantined": f.stats.Quarantined.Bytes}
	}),
	"Memory by state, and the budget: B":        of(pending),
	"Memory by state, and the budget: C":        of(func(f figures) uint64 { return f.stats.Claimed }),
	"Memory by state, and the budget: D":        of(budget),
	"Peaks between scrapes: A":                  of(live),
	"Peaks between scrapes: B":                  of(outstanding),
	"Fullness of devices, budgets and pools: A": deviceShare,
	"Fullness of devices, budgets and pools: B": budgetShare,
	"Fullness of devices, budgets and pools: C": poolShare,
	"The pool: A":                    of(func(f figures) uint64 { return f.stats.Reserved }),
	"The pool: B":                    of(func(f figures) uint64 { return f.stats.PoolUsed }),
	"The pool: C":                    of(func(f figures) uint64 { return f.stats.OwnPool.Fragmented }),
	"The pool: D":                    of(poolLimit),
	"The whole device: A":            of(total),
	"The whole device: B":            of(free),
	"The whole device: C":            of(held),
	"GPUs: A":                        of(total),
	"GPUs: B":                        of(inUse),
	"GPUs: C":                        of(held),
	"Drift of the ledger: A":         always(0),
	"Health by runtime: A":           of(healthNumber),
	"Findings by kind: A":            of(found),
	"Findings by kind and victim: A": ever,
	"Mode: A":                        always(1), // ledger
	"What the guard keeps: A": func(s state, m map[string]string) []float64 {
		if m["what"] != "ledger_blocks" {
			return nil
		}
		return []float64{float64(s.ledger)}
	},
	"Streams by state: A": by("state", streamStates),
	"Share of the streams leased: A": func(s state, _ map[string]string) []float64 {
		return []float64{float64(s.streams.Leased) / float64(s.streams.Max)}
	},
	"Callers waiting: A":                of(func(f figures) int { return f.streams.Waiting }),
	"Launches under way, and events: A": of(func(f figures) uint64 { return f.stats.OpenIntents }),
	"Launches under way, and events: B": of(func(f figures) uint64 { return f.stats.Events }),
	"Blocks by state: A":                by("state", blockStates),
	"Runtimes by health: A":             by("state", healthStates),
	"What runs where: A":                always(1),
	"Top tags: A":                       byTag,
	"Fullest budgets, and refusals: A":  budgetShare,
	"Where bugs were found: A":          ever,
}

// ofPeaks are those of the last minute's peak, which may be older than a scrape, but
// not than peakAge; ofNothing those that are empty while all is well, and ofRange
// those of the whole range, which stay when a process has ended.
var (
	ofPeaks = map[string]bool{"Runtimes: B": true, "Runtimes: D": true, "Runtimes: E": true, "Fullest: B": true, "Fullest: C": true, "Live memory by tag: A": true, "Holders: A": true,
		"Peaks between scrapes: A": true, "Peaks between scrapes: B": true, "Fullness of devices, budgets and pools: B": true, "Fullness of devices, budgets and pools: C": true, "Fullest budgets, and refusals: A": true}
	ofNothing = map[string]bool{"Health: B": true, "Memory by state, and the budget: E": true, "Leases granted and refused: C": true, "Fullest budgets, and refusals: B": true}
	ofRange   = map[string]bool{"Memory bugs found": true, "Findings by kind and victim": true, "Where bugs were found": true}
)

const peakAge = 130 * time.Second

// boardQuery is a query as Grafana would send it.
func boardQuery(expr string) string {
	return strings.NewReplacer("$__rate_interval", "20s", "$__range", "1h", "$job", ".+", "$instance", ".+", "$device", ".+").Replace(expr)
}

// vigil is what was seen of the boards.
type vigil struct {
	panels         []shownPanel
	seen           map[string]bool // queries that have shown something
	rounds, missed int
	compared       map[string]int // by panel
	noticed        int            // numbers of before that were seen to be old
}

// look asks every query of every panel while the runtime runs. A round in which
// a scrape failed says nothing.
func (v *vigil) look(t *testing.T, w watcher, c *chronicle) {
	t.Helper()
	for _, p := range v.panels {
		for _, q := range p.Targets {
			name := p.Title + ": " + q.RefID
			before, up := lastScrape(t, w)
			samples := w.query(t, boardQuery(q.Expr))
			if !up || !scrapedSince(t, w, before) {
				v.missed++
				continue
			}
			v.rounds++
			if needed := p.FieldConfig.Defaults.NoValue == "no runtime" && !ofNothing[name]; needed && len(samples) == 0 && v.seen[name] {
				t.Errorf("%s is empty while a runtime runs:\n%s", name, q.Expr)
			}
			v.seen[name] = v.seen[name] || len(samples) > 0
			if ofPeaks[name] {
				before = before.Add(-peakAge)
			}
			if truth := truths[name]; truth != nil {
				for _, wrong := range v.compare(t, name, samples, c.since(before), truth) {
					t.Error(wrong)
				}
			}
		}
	}
}

// compare demands values that were true at one time since the last scrape, and
// returns what is said of others.
func (v *vigil) compare(t *testing.T, name string, samples []sample, states []state, is truth) (wrong []string) {
	t.Helper()
	for _, s := range samples {
		if len(is(states[0], s.Metric)) == 0 {
			continue // not in the books of the test
		}
		title, _, _ := strings.Cut(name, ": ")
		v.compared[title]++
		got := s.value(t)
		if !slices.ContainsFunc(states, func(then state) bool {
			return then.running && slices.ContainsFunc(is(then, s.Metric), func(want float64) bool { return math.Abs(want-got) <= 1e-9*math.Abs(got) })
		}) {
			wrong = append(wrong, fmt.Sprintf("%s shows %v of %v; since the last scrape it was %v to %v", name, got, s.Metric, is(states[0], s.Metric), is(states[len(states)-1], s.Metric)))
		}
	}
	return wrong
}

// lookBehind asks for what live memory was a step before, which must not pass
// for what it is: a number that is older than a scrape is noticed.
func (v *vigil) lookBehind(t *testing.T, w watcher, c *chronicle) {
	t.Helper()
	const name = "Runtimes: A"
	before, up := lastScrape(t, w)
	samples := w.query(t, fmt.Sprintf(`sum(gpumem_memory_bytes{state="live"} offset %v)`, step))
	if up && scrapedSince(t, w, before) {
		v.noticed += len(v.compare(t, name, samples, c.since(before), truths[name]))
	}
}

// lastScrape is when the runtime was last scraped, and whether that worked.
func lastScrape(t *testing.T, w watcher) (at time.Time, up bool) {
	t.Helper()
	times, values := w.query(t, "timestamp(up)"), w.query(t, "up")
	if len(times) != 1 || len(values) != 1 {
		return at, false
	}
	return time.UnixMilli(int64(times[0].value(t) * 1000)), values[0].value(t) == 1
}

// scrapedSince reports whether every scrape since one that worked has worked too.
func scrapedSince(t *testing.T, w watcher, one time.Time) bool {
	t.Helper()
	now := time.Now()
	samples := w.query(t, fmt.Sprintf("min_over_time(up[%dms] @ %s)", now.Sub(one).Milliseconds()+1, stamp(now)))
	return len(samples) == 1 && samples[0].value(t) == 1
}

// The panels of the boards, as their JSON has them, are asked beside what is
// true: nothing is empty that should not be, nothing is older than a scrape.
// When the process has ended nothing is said to be now, but what was found
// stays; so it does when the process is started again.
func TestTheBoardsSayWhatIsTrue(t *testing.T) {
	t.Parallel()
	c := &chronicle{address: "127.0.0.1:" + freePort(t)}
	c.begin(t, fencepost.Pool) // of which all panels show something
	w := startPrometheus(t, fmt.Sprintf("global: {scrape_interval: %v, scrape_timeout: %v}\nscrape_configs:\n  - job_name: chronicle\n    static_configs: [{targets: [%q]}]\n", scrapeInterval, scrapeInterval, c.address))
	v := &vigil{panels: panelsOf(t, watched...), seen: map[string]bool{}, compared: map[string]int{}}
	for begin := time.Now(); time.Since(begin) < *watchFor && !t.Failed(); time.Sleep(*watchEvery) {
		v.look(t, w, c)
		v.lookBehind(t, w, c)
	}
	for _, p := range v.panels {
		for _, q := range p.Targets {
			if name := p.Title + ": " + q.RefID; p.FieldConfig.Defaults.NoValue == "no runtime" && !ofNothing[name] && !v.seen[name] {
				t.Errorf("%s: %s never showed anything", p.Title, q.RefID)
			}
		}
	}
	t.Logf("%d answers, %d of them while a scrape was missed; values compared: %v; %d old ones noticed", v.rounds+v.missed, v.missed, v.compared, v.noticed)
	if len(v.compared) < 25 || v.rounds < v.missed || v.noticed == 0 {
		t.Errorf("too little was seen")
	}
	c.stop()
	v.wantEnded(t, w)
	c.begin(t, fencepost.Async)
	if !until(t.Context(), beginTime, func() bool { _, up := lastScrape(t, w); return up }) {
		t.Fatal("it is not started again")
	}
	if found := v.ask(t, w, "Memory bugs found", "B"); found != 1 {
		t.Errorf("after a restart %v bugs were found, want 1", found)
	}
	v.seen = map[string]bool{} // a rate is empty until the second scrape
	v.look(t, w, c)
}

// wantEnded demands that no number is of now, and that findings stay.
func (v *vigil) wantEnded(t *testing.T, w watcher) {
	t.Helper()
	var left []string
	if !until(t.Context(), beginTime, func() bool {
		left = nil
		for _, p := range v.panels {
			for _, q := range p.Targets {
				if (p.Type == "stat" || p.Type == "table") && !ofRange[p.Title] && !ofNothing[p.Title+": "+q.RefID] && len(w.query(t, boardQuery(q.Expr))) > 0 {
					left = append(left, p.Title)
				}
			}
		}
		return len(left) == 0
	}) {
		t.Errorf("the process has ended, and there is something in %q", left)
	}
	if found, gone := v.ask(t, w, "Memory bugs found", "B"), v.ask(t, w, "Health", "B"); found != 1 || gone != 1 {
		t.Errorf("after the end %v bugs were found, and %v runtimes are gone, want 1 of each", found, gone)
	}
}

// ask is the only value of a query of a panel, or -1.
func (v *vigil) ask(t *testing.T, w watcher, title, ref string) float64 {
	t.Helper()
	for _, p := range v.panels {
		for _, q := range p.Targets {
			if p.Title == title && q.RefID == ref {
				if samples := w.query(t, boardQuery(q.Expr)); len(samples) == 1 {
					return samples[0].value(t)
				}
			}
		}
	}
	return -1
}
