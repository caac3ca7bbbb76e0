package profile_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/profile"
)

// equalsStats demands that the sums of each state are those of the books.
func equalsStats(t *testing.T, rt interface{ Stats() core.Stats }, source profile.Source) {
	t.Helper()
	stats, p := rt.Stats(), written(t, source)
	for rt.Stats() != stats { // the device has passed a free meanwhile
		stats, p = rt.Stats(), written(t, source)
	}
	for state, want := range map[string]core.Amount{"live": stats.Live, "pending": stats.Pending, "quarantined": stats.Quarantined} {
		want.Requested = 0
		if got := inUse(p, "state", state); got != want {
			t.Errorf("%s: the profile sums up to %+v, the books to %+v", state, got, want)
		}
	}
	want := stats.Outstanding()
	want.Requested = 0
	if got := inUse(p, "", ""); got != want {
		t.Errorf("all: the profile sums up to %+v, the books to %+v", got, want)
	}
}

func TestSumsAreExactForWhatIsLivePendingAndQuarantined(t *testing.T) {
	rt, source := open(t)
	leases := []*cuda.Lease{lease(t, rt), lease(t, rt)}
	streams := []core.StreamID{core.DefaultStream, leases[0].ID(), leases[1].ID()}
	var blocks []core.Block
	for i := range 300 {
		blocks = append(blocks, allocate(t, rt, uint64(1000+i*16), streams[i%3], core.Tag(fmt.Sprint("tag", i%7))))
	}
	blocks = append(blocks, allocate(t, rt, 3<<20, streams[1], "big"))
	equalsStats(t, rt, source)

	free(t, rt, blocks[:150]...)
	stats := rt.Stats()
	if stats.Quarantined.Blocks == 0 || stats.Live.Blocks != 151 {
		t.Fatalf("the test needs blocks in quarantine: %+v", stats)
	}
	release := must.Get(rt.Driver().(*sim.Device).Hold(leases[1].Handle()))(t) // or the device would pass the frees at once
	t.Cleanup(release)
	free(t, rt, blocks[150:200]...)
	if rt.Stats().Pending.Blocks == 0 {
		t.Fatalf("the test needs blocks that are pending: %+v", rt.Stats())
	}
	equalsStats(t, rt, source)
	release()
	free(t, rt, blocks[200:]...)
	must.Do(t, rt.Drain(t.Context()))
	equalsStats(t, rt, source)
	if sum := inUse(written(t, source), "", ""); sum != (core.Amount{}) {
		t.Errorf("nothing is held, and the profile says %+v", sum)
	}
}

func TestAStackLeadsToTheCallerOfTheRuntime(t *testing.T) {
	rt, source := open(t)
	big, small := allocate(t, rt, 2<<20, 0, "index"), allocate(t, rt, 16, 0, "crumbs")
	got := leaves(written(t, source), "index")
	if len(got) != 1 || got["github.com/fencepost-gpu/fencepost/telemetry/profile_test.allocate"] < 2<<20 {
		t.Errorf("the leaves are %v", got)
	}
	for leaf := range leaves(written(t, source), "crumbs") { // 1 in 500 has a stack
		if leaf != "unsampled" && !strings.HasSuffix(leaf, ".allocate") {
			t.Errorf("the leaf of an unsampled block is %s", leaf)
		}
	}
	free(t, rt, big, small)
}

func TestLabelsNameTagDeviceStreamAndState(t *testing.T) {
	rt, source := open(t)
	s := lease(t, rt).ID()
	b := allocate(t, rt, 4096, s, "join.table")
	p := written(t, source)
	for label, want := range map[string]string{"tag": "join.table", "device": "0", "stream": s.String(), "state": "live"} {
		if inUse(p, label, want).Blocks != 1 {
			t.Errorf("no block has %s=%s in\n%v", label, want, p)
		}
	}
	if p.DefaultSampleType != "inuse_space" || p.SampleType[3].Type != "inuse_space" {
		t.Errorf("the default is %s", p.DefaultSampleType)
	}
	free(t, rt, b)
}

// A string of a protocol buffer is UTF-8: tools may refuse the whole profile for
// one that is not.
func TestATagThatIsNoUTF8CostsNoProfile(t *testing.T) {
	rt, source := open(t)
	blocks := []core.Block{allocate(t, rt, 4096, core.DefaultStream, "model \xff"), allocate(t, rt, 4096, core.DefaultStream, "model \xfe")}
	p, live := written(t, source), rt.Stats().Live // with the red zones of what was sampled
	a, b := inUse(p, "tag", names.Bound("model \xff")), inUse(p, "tag", names.Bound("model \xfe"))
	if a.Blocks != 1 || b.Blocks != 1 || a.Bytes+b.Bytes != live.Bytes {
		t.Errorf("%+v and %+v", a, b)
	}
	free(t, rt, blocks...)
}

func TestEverythingEverAllocatedIsCountedExactly(t *testing.T) {
	base := coretest.NewFake(0)
	source := profile.Source{Resource: base, Allocations: profile.NewAllocations(base)}
	var bytes, blocks uint64
	stack := core.CaptureStack(0)
	for round := range 10 {
		var held []core.Block
		for i := range 50 {
			b := must.Get(base.Allocate(t.Context(), core.Request{Bytes: uint64(1 + round*1000 + i), Tag: "churn"}))(t)
			if i%5 == 0 {
				source.Allocations.Sampled(b.Bytes, b.Tag, stack)
			}
			held, bytes, blocks = append(held, b), bytes+b.Bytes, blocks+1
		}
		for _, b := range held {
			must.Get(base.Deallocate(t.Context(), b.ID))(t)
		}
		if round%2 == 0 { // what the others freed stays pending
			base.Pass()
		}
	}
	p := written(t, source)
	if got := allocated(p); got.Bytes != bytes || got.Blocks != blocks {
		t.Errorf("the profile says %+v, and %d bytes in %d blocks were allocated", got, bytes, blocks)
	}
	sampled := int64(0)
	for _, s := range p.Sample {
		if s.HasLabel("tag", "churn") && s.Value[0] > 0 {
			sampled += s.Value[0]
			if name := s.Location[0].Line[0].Function.Name; !strings.HasSuffix(name, "TestEverythingEverAllocatedIsCountedExactly") {
				t.Errorf("the leaf is %s", name)
			}
		}
	}
	if sampled != 100 {
		t.Errorf("%d allocations have a stack, want 100", sampled)
	}
}

func TestDevicesAreToldApart(t *testing.T) {
	one, two := coretest.NewFake(0), coretest.NewFake(1)
	for i, r := range []*coretest.Fake{one, two, two} {
		must.Get(r.Allocate(context.Background(), core.Request{Bytes: uint64(100 + i)}))(t)
	}
	p := written(t, profile.Source{Resource: one}, profile.Source{Resource: two})
	if a, b := inUse(p, "device", "0"), inUse(p, "device", "1"); a.Bytes != 100 || b != (core.Amount{Bytes: 203, Blocks: 2}) {
		t.Errorf("device 0 has %+v, device 1 %+v", a, b)
	}
}

func TestACommentSaysWhatThePoolHolds(t *testing.T) {
	for _, resource := range []fencepost.Backend{fencepost.Async, fencepost.Pool} {
		rt := e2e.Open(t, fencepost.Config{Device: fencepost.Sim, Resource: resource, Guard: "off"})
		source := profile.Source{Resource: rt.Core().Resource()}
		if p := written(t, source); len(p.Comments) > 0 {
			t.Errorf("%s holds nothing, and the profile says %q", resource, p.Comments)
		}
		live := allocate(t, rt, 3<<20, 0, "rows")
		free(t, rt, allocate(t, rt, 5<<20, 0, "rows"))
		must.Do(t, rt.Drain(t.Context()))
		p, st := written(t, source), rt.Stats()
		if st.Cached == 0 || len(p.Comments) != 1 || !strings.HasPrefix(p.Comments[0], fmt.Sprintf("device 0: the pool holds %d bytes, and %d of them are cached", st.Reserved, st.Cached)) {
			t.Errorf("%s holds %d bytes, %d cached, and the profile says %q", resource, st.Reserved, st.Cached, p.Comments)
		}
		if want := resource == fencepost.Pool; want != strings.HasSuffix(p.Comments[0], fmt.Sprintf("; %d of those are fragmented", st.OwnPool.Fragmented)) {
			t.Errorf("%s: %q, %d are fragmented", resource, p.Comments, st.OwnPool.Fragmented)
		}
		if sum := inUse(p, "", ""); sum.Bytes != 3<<20 {
			t.Errorf("%s: the samples sum up to %+v", resource, sum)
		}
		var text strings.Builder
		if err := profile.Write(&text, 1, source); err != nil || strings.Count(text.String(), p.Comments[0]+"\n") != 1 {
			t.Errorf("%s: %v\n%s", resource, err, text.String())
		}
		free(t, rt, live)
	}
}

// pprofTool runs go tool pprof on files.
func pprofTool(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"tool", "pprof"}, args...)...)
	cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("pprof %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func toFile(t *testing.T, name string, source profile.Source) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	file := must.Get(os.Create(path))(t)
	must.Do(t, profile.Write(file, 0, source))
	must.Do(t, file.Close())
	return path
}

//go:noinline
func buildIndex(t *testing.T, h *held) { h.add(t, 4<<20, "index") }

//go:noinline
func loadColumn(t *testing.T, h *held) { h.add(t, 2<<20, "column") }

// The profile works with the tool that everybody has: what is in use, the
// difference of two files, a tag in front of the stacks, one tag alone.
func TestGoToolPprofReadsTheProfile(t *testing.T) {
	if testing.Short() {
		t.Skip("the go command builds pprof for it: make proof runs it")
	}
	rt, source := open(t)
	h := &held{allocate: func(bytes uint64, tag core.Tag) core.Block { return allocate(t, rt, bytes, 0, tag) }}
	buildIndex(t, h)
	small := allocate(t, rt, 3, 0, "crumbs")
	before := toFile(t, "before.pb.gz", source)
	loadColumn(t, h)
	loadColumn(t, h)
	free(t, rt, h.blocks[0])
	must.Do(t, rt.Guard().Flush(t.Context()))
	must.Do(t, rt.Drain(t.Context()))
	after := toFile(t, "after.pb.gz", source)

	for _, c := range []struct {
		name string
		args []string
		want []string // patterns of lines
		not  string
	}{
		{"top", []string{"-top", "-cum", "-unit=MB", before}, []string{`^Type: inuse_space`, ` 4MB .* \S*profile_test\.buildIndex`, ` 4MB .*\(\*held\)\.add`}, "debugguard"},
		{"objects", []string{"-top", "-cum", "-sample_index=inuse_objects", after}, []string{`^Type: inuse_objects`, ` 2 .*loadColumn`}, "buildIndex"},
		{"allocated", []string{"-top", "-sample_index=alloc_space", after}, []string{`^Type: alloc_space`, `unsampled$`}, "No samples"},
		{"pool", []string{"-comments", after}, []string{`^device 0: the pool holds \d+ bytes, and \d+ of them are cached`}, "profile_test"},
		{"difference", []string{"-top", "-cum", "-unit=MB", "-diff_base=" + before, after}, []string{` -4MB .*buildIndex`, ` 4MB .*loadColumn`}, ""},
		{"tag as root", []string{"-top", "-cum", "-unit=MB", "-tagroot=tag", after}, []string{` 4MB .* column$`}, ""},
		{"one tag", []string{"-top", "-cum", "-unit=MB", "-tagfocus=tag=index", before}, []string{`buildIndex`}, "crumbs"},
		{"tags", []string{"-tags", before}, []string{`tag: Total`, `state: Total`, `device: Total`, `stream: Total`, `: crumbs$`}, ""},
	} {
		out := pprofTool(t, c.args...)
		for _, want := range c.want {
			if !regexp.MustCompile(`(?m)` + want).MatchString(out) {
				t.Errorf("%s: no line like %q in\n%s", c.name, want, out)
			}
		}
		if c.not != "" && strings.Contains(out, c.not) {
			t.Errorf("%s: %q is in\n%s", c.name, c.not, out)
		}
	}
	free(t, rt, append(h.blocks[1:], small)...)
}

// held keeps blocks.
type held struct {
	allocate func(uint64, core.Tag) core.Block
	blocks   []core.Block
}

func (h *held) add(_ *testing.T, bytes uint64, tag core.Tag) {
	h.blocks = append(h.blocks, h.allocate(bytes, tag))
}
