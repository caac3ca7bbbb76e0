package shown_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// profileOf takes a profile as a scraper does.
func profileOf(t *testing.T, rt *fencepost.Runtime) *pprof.Profile {
	t.Helper()
	w := httptest.NewRecorder()
	rt.ProfileHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/pprof/gpumem", nil))
	p, err := pprof.Parse(w.Body)
	if err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %v", w.Code, err)
	}
	return p
}

// profiled sums up one sample type over the samples that pass.
func profiled(p *pprof.Profile, sampleType string, passes func(*pprof.Sample) bool) (sum uint64) {
	for i, st := range p.SampleType {
		for _, s := range p.Sample {
			if st.Type == sampleType && passes(s) {
				sum += uint64(s.Value[i])
			}
		}
	}
	return sum
}

func everySample(*pprof.Sample) bool { return true }

func withStack(s *pprof.Sample) bool { return s.Location[0].Line[0].Function.Name != "unsampled" }

func labelled(label, value string) func(*pprof.Sample) bool {
	return func(s *pprof.Sample) bool { return s.HasLabel(label, value) }
}

// Whatever the guard does, over either backend, the profile has every byte
// that the books have, and every byte that was ever allocated.
func TestTheProfileSumsUpToTheStats(t *testing.T) {
	for _, backend := range []fencepost.Backend{fencepost.Async, fencepost.Pool, fencepost.Direct} {
		for _, guard := range []string{"off", "ledger", "sample", "sample:4096", "hunt"} {
			t.Run(string(backend)+" "+guard, func(t *testing.T) {
				rt := e2e.Open(t, fencepost.Config{Resource: backend, Guard: fencepost.GuardMode(guard)})
				s := e2e.Lease(t, rt, "s")
				var blocks []core.Block
				for i := range 200 {
					blocks = append(blocks, e2e.Allocate(t, rt, uint64(1000+17*i), s.ID(), "many"))
				}
				blocks = append(blocks, e2e.Allocate(t, rt, 3<<20, s.ID(), "large"))
				release := func() {}
				if backend == fencepost.Async { // whose free does not wait for the device: it stays pending
					release = e2e.Hold(t, rt, s.Handle())
				}
				e2e.Free(t, rt, blocks[:100]...)
				equalsTheStats(t, rt)
				release()
				e2e.Free(t, rt, blocks[100:]...)
				must.Do(t, rt.Drain(t.Context()))
				equalsTheStats(t, rt)
			})
		}
	}
}

func equalsTheStats(t *testing.T, rt *fencepost.Runtime) {
	t.Helper()
	stats, p := rt.Stats(), profileOf(t, rt)
	for rt.Stats() != stats { // the reaper was there
		stats, p = rt.Stats(), profileOf(t, rt)
	}
	for state, want := range map[string]core.Amount{"live": stats.Live, "pending": stats.Pending, "quarantined": stats.Quarantined} {
		if bytes, blocks := profiled(p, "inuse_space", labelled("state", state)), profiled(p, "inuse_objects", labelled("state", state)); bytes != want.Bytes || blocks != want.Blocks {
			t.Errorf("%s: %d bytes in %d blocks, the books have %+v", state, bytes, blocks, want)
		}
	}
	base := core.Base(rt.Core().Resource()).Stats()
	if got := profiled(p, "alloc_objects", everySample); got != base.Allocations {
		t.Errorf("%d blocks ever allocated, the books have %d", got, base.Allocations)
	}
	if got, least := profiled(p, "alloc_space", everySample), base.Outstanding().Bytes; got < least {
		t.Errorf("%d bytes ever allocated, and %d are outstanding", got, least)
	}
}

// At default settings a large block has its stack, and so has every one of a
// hunted tag; of small ones a few have.
func TestTheProfileNamesWhoAllocated(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{GuardConfig: debugguard.Config{HuntTags: []core.Tag{"hunted"}}})
	s := e2e.Lease(t, rt, "s")
	var blocks []core.Block
	keep := func(b core.Block) { blocks = append(blocks, b) }
	for range 4 {
		keep(e2e.Allocate(t, rt, 2<<20, s.ID(), "large"))
		keep(e2e.Allocate(t, rt, 100, s.ID(), "hunted"))
	}
	for range 1000 {
		keep(e2e.Allocate(t, rt, 256, s.ID(), "crumbs"))
	}
	p := profileOf(t, rt)
	for _, tag := range []string{"large", "hunted"} {
		of := labelled("tag", tag)
		for _, sampleType := range []string{"inuse_objects", "alloc_objects"} {
			if n := profiled(p, sampleType, func(s *pprof.Sample) bool { return of(s) && withStack(s) }); n != 4 {
				t.Errorf("%s: %d of the 4 blocks tagged %s have their stack", sampleType, n, tag)
			}
		}
	}
	if n := profiled(p, "inuse_objects", func(s *pprof.Sample) bool { return s.HasLabel("tag", "crumbs") && withStack(s) }); n > 100 {
		t.Errorf("%d of 1000 crumbs have their stack", n)
	}
	// What is counted when it is allocated is what the device was asked for.
	if got, want := profiled(p, "alloc_space", labelled("tag", "hunted")), profiled(p, "inuse_space", labelled("tag", "hunted")); got != want || got <= 400 {
		t.Errorf("allocated %d bytes, in use %d, of 400 that were asked for", got, want)
	}
	for _, sample := range p.Sample {
		if sample.HasLabel("state", "live") && (!sample.HasLabel("device", "0") || !sample.HasLabel("stream", s.ID().String()) || len(sample.Label["tag"]) != 1) {
			t.Errorf("labels %v", sample.Label)
		}
	}
	e2e.Free(t, rt, blocks...)
}

//go:noinline
func loadModel(t *testing.T, rt *fencepost.Runtime) core.Block {
	return e2e.Allocate(t, rt, 8<<20, core.DefaultStream, "model")
}

//go:noinline
func loadTable(t *testing.T, rt *fencepost.Runtime) core.Block {
	return e2e.Allocate(t, rt, 4<<20, core.DefaultStream, "table")
}

// The tool that everybody has reads it from the server, and compares it with
// what it read before.
func TestGoToolPprofReadsTheProfileOverHTTP(t *testing.T) {
	if testing.Short() {
		t.Skip("the go command builds pprof for it: make proof runs it")
	}
	rt := e2e.Open(t, fencepost.Config{Guard: "ledger"})
	mux := http.NewServeMux()
	mux.Handle("/debug/pprof/gpumem", rt.ProfileHandler())
	server := httptest.NewServer(mux)
	defer server.Close()
	url, before := server.URL+"/debug/pprof/gpumem", filepath.Join(t.TempDir(), "before.pb.gz")

	model := loadModel(t, rt)
	pprofTool(t, "-proto", "-output="+before, url)
	top := pprofTool(t, "-top", "-cum", "-unit=MB", url)
	e2e.Free(t, rt, model)
	must.Do(t, rt.Drain(t.Context()))
	table := loadTable(t, rt)
	difference := pprofTool(t, "-top", "-cum", "-unit=MB", "-diff_base="+before, url)
	tags := pprofTool(t, "-tags", url)
	for _, c := range []struct{ out, want string }{
		{top, `Type: inuse_space`},
		{top, ` 8MB .*loadModel`},
		{difference, ` -8MB .*loadModel`},
		{difference, ` 4MB .*loadTable`},
		{tags, `tag: Total`}, {tags, `: table$`}, {tags, `state: Total`}, {tags, `: live$`}, {tags, `device: Total`}, {tags, `stream: Total`},
	} {
		if !regexp.MustCompile(`(?m)` + c.want).MatchString(c.out) {
			t.Errorf("no line like %q in\n%s", c.want, c.out)
		}
	}
	if strings.Contains(top, "debugguard") {
		t.Errorf("the runtime's own frames are in\n%s", top)
	}
	e2e.Free(t, rt, table)
}

func pprofTool(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"tool", "pprof", "-symbolize=none"}, args...)...)
	cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("pprof %v: %v\n%s", args, err, out)
	}
	return string(out)
}
