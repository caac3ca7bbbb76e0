package profile_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
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
	release, err := rt.Driver().(*sim.Device).Hold(leases[1].Handle()) // or the device would pass the frees at once
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	free(t, rt, blocks[150:200]...)
	if rt.Stats().Pending.Blocks == 0 {
		t.Fatalf("the test needs blocks that are pending: %+v", rt.Stats())
	}
	equalsStats(t, rt, source)
	release()
	free(t, rt, blocks[200:]...)
	if err := rt.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
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

func TestEverythingEverAllocatedIsCountedExactly(t *testing.T) {
	base := coretest.NewFake(0)
	source := profile.Source{Resource: base, Allocations: profile.NewAllocations(base)}
	var bytes, blocks uint64
	stack := core.CaptureStack(0)
	for round := range 10 {
		var held []core.Block
		for i := range 50 {
			b, err := base.Allocate(t.Context(), core.Request{Bytes: uint64(1 + round*1000 + i), Tag: "churn"})
			if err != nil {
				t.Fatal(err)
			}
			if i%5 == 0 {
				source.Allocations.Sampled(b.Bytes, b.Tag, stack)
			}
			held, bytes, blocks = append(held, b), bytes+b.Bytes, blocks+1
		}
		for _, b := range held {
			if _, err := base.Deallocate(t.Context(), b.ID); err != nil {
				t.Fatal(err)
			}
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
		if _, err := r.Allocate(context.Background(), core.Request{Bytes: uint64(100 + i)}); err != nil {
			t.Fatal(err)
		}
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
		if err := rt.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
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
