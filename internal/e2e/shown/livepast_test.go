package shown_test

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
)

// pastSeen is what the page is sent to fill its chart with.
type pastSeen struct {
	T                            []float64
	Tags                         []string
	Live                         [][]uint64
	Others, Quarantined, Pending []uint64
}

func pastOf(t *testing.T, h http.Handler) (p pastSeen) {
	t.Helper()
	w := e2e.Request(h, http.MethodGet, "/debug/gpumem/past", "")
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	e2e.Succeed(t, "past", json.Unmarshal(w.Body.Bytes(), &p))
	return p
}

// heldSeen is what was held while nobody did anything, from one look to the next.
type heldSeen struct {
	from, until          float64
	live                 map[string]uint64
	quarantined, pending uint64
}

func (h *heldSeen) same(o *heldSeen) bool {
	return maps.Equal(h.live, o.live) && h.quarantined == o.quarantined && h.pending == o.pending
}

func unixSeconds() float64 { return float64(time.Now().UnixNano()) / 1e9 }

func heldBy(rt *fencepost.Runtime) heldSeen {
	h := heldSeen{live: map[string]uint64{}}
	for _, x := range rt.Budget().Holders() {
		switch x.State {
		case core.Retired:
			h.pending += x.Bytes
		case core.Quarantined:
			h.quarantined += x.Bytes
		default:
			h.live[string(x.Tag)] += x.Bytes
		}
	}
	return h
}

// The past that is made of the log and of what the guard remembers is what was
// there: it is compared with looks at the budget's books, taken as it happened.
func TestThePastIsWhatWasThere(t *testing.T) {
	for name, c := range map[string]struct {
		guard string
		level logging.Level
	}{
		"hunt":   {"hunt", logging.Uses},
		"sample": {"sample:1", logging.Uses},
		"ledger": {"ledger", logging.Operations},
	} {
		t.Run(name, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 1))
			cfg := fencepost.Config{Guard: fencepost.GuardMode(c.guard), LogLevel: c.level, History: 4096}
			cfg.GuardConfig.QuarantineBytes, cfg.GuardConfig.Advanced.Hunt.QuarantineBytes = 512<<10, 512<<10 // blocks leave it, too
			for range 20 {                                                                                    // a machine that is busy elsewhere between the looks leaves few points to compare
				rt := e2e.Open(t, cfg)
				h := e2e.HandlerOf(t, fencepost.HandlerConfig{}, rt)
				truth := play(t, rt, random)
				e2e.Succeed(t, "Drain", rt.Drain(t.Context())) // a release that is under way may be missing
				if checked := checkPast(t, pastOf(t, h), truth, c.level == logging.Uses); checked >= 50 || t.Failed() {
					return
				}
			}
			t.Error("in no run 50 points could be compared")
		})
	}
}

// play allocates and frees, and looks at the books before and after.
func play(t *testing.T, rt *fencepost.Runtime, random *rand.Rand) (truth []heldSeen) {
	t.Helper()
	var blocks []core.Block
	tags := []core.Tag{"weights", "kv.cache", "sort.keys"}
	for range 120 {
		if len(blocks) > 0 && random.IntN(5) < 2 {
			i := random.IntN(len(blocks))
			e2e.Free(t, rt, blocks[i])
			blocks = slices.Delete(blocks, i, i+1)
		} else {
			blocks = append(blocks, e2e.Allocate(t, rt, uint64(1+random.IntN(1<<16)), core.DefaultStream, tags[random.IntN(len(tags))]))
		}
		settled := rt.Stats().Pending.Bytes
		first, from := heldBy(rt), unixSeconds()
		time.Sleep(2 * time.Millisecond)
		until, last := unixSeconds(), heldBy(rt)
		// Otherwise a release or the guard came in between, or the backend has told
		// the log of a release and not yet the budget: however long that takes.
		if first.same(&last) && settled == first.pending && rt.Stats().Pending.Bytes == last.pending {
			first.from, first.until = from, until
			truth = append(truth, first)
		}
	}
	for _, b := range blocks {
		e2e.Free(t, rt, b)
	}
	return truth
}

// checkPast compares the points at which the truth is known, and returns how many
// these are.
func checkPast(t *testing.T, past pastSeen, truth []heldSeen, pendingKnown bool) (checked int) {
	t.Helper()
	if len(past.T) == 0 || len(past.T) > 300 || (past.Pending != nil) != pendingKnown {
		t.Fatalf("%d points, pending known: %v", len(past.T), past.Pending != nil)
	}
	quarantined := 0
	for i, at := range past.T {
		// Points closer to a change than the clocks differ say nothing.
		const near = 200e-6
		k := slices.IndexFunc(truth, func(h heldSeen) bool { return h.from+near < at && at < h.until-near })
		if k < 0 {
			continue
		}
		checked++
		want := truth[k]
		for j, tag := range past.Tags {
			if past.Live[j][i] != want.live[tag] {
				t.Errorf("point %d: %s had %d bytes live, and is said to have had %d", i, tag, want.live[tag], past.Live[j][i])
			}
		}
		if past.Others[i] != 0 || past.Quarantined[i] != want.quarantined {
			t.Errorf("point %d: %d bytes were quarantined, and are said to have been %d, others %d", i, want.quarantined, past.Quarantined[i], past.Others[i])
		}
		if pendingKnown && past.Pending[i] != want.pending {
			t.Errorf("point %d: %d bytes were pending, and are said to have been %d", i, want.pending, past.Pending[i])
		}
		if want.quarantined > 0 {
			quarantined++
		}
	}
	t.Logf("%d points of %d were compared, %d of them with quarantined bytes", checked, len(past.T), quarantined)
	return checked
}

// What the log has lost is left out, and is no zero.
func TestThePastBeginsWhereTheLogDoes(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Guard: "off", History: 256})
	h := e2e.HandlerOf(t, fencepost.HandlerConfig{}, rt)
	held := e2e.Allocate(t, rt, 1<<20, core.DefaultStream, "weights")
	// Quiet streams keep their records when the busy one has lost its own.
	for _, quiet := range []*cuda.Lease{e2e.Lease(t, rt, "quiet"), e2e.Lease(t, rt, "quiet")} {
		e2e.Free(t, rt, e2e.Allocate(t, rt, 4096, quiet.ID(), "quiet"))
		e2e.Succeed(t, "Release", quiet.Release())
	}
	time.Sleep(20 * time.Millisecond)
	began := unixSeconds()
	for range 1000 {
		e2e.Free(t, rt, e2e.Allocate(t, rt, 4096, core.DefaultStream, "busy"))
	}
	past := pastOf(t, h)
	if len(past.T) == 0 || past.T[0] < began {
		t.Fatalf("it begins %v s before what the log still has", began-past.T[0])
	}
	for i, tag := range past.Tags {
		if tag == "weights" && slices.Min(past.Live[i]) != 1<<20 {
			t.Errorf("weights held %v", past.Live[i])
		}
	}
	if !slices.Contains(past.Tags, "weights") {
		t.Errorf("tags %v", past.Tags)
	}
	e2e.Free(t, rt, held)
}
