package liveview_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/telemetry/liveview"
)

// A closer look shows what the map of everything adds up.
func TestACloserLookShowsBlocksOneByOne(t *testing.T) {
	const n = 100_000
	r := &resource{n: n, block: small}
	h := view(t, liveview.Source{Resource: r})
	whole := ask[state](t, h, "/state").Device.Map
	if whole.Rest.Blocks != n-2048 || whole.Rest.CellBytes < 1<<19 {
		t.Fatalf("the map of all sums up %d blocks in cells of %d bytes", whole.Rest.Blocks, whole.Rest.CellBytes)
	}
	from, to := uint64(base+500*8192), uint64(base+1500*8192)
	m := ask[addressMap](t, h, fmt.Sprintf("/map?from=%d&to=%#x", from, to))
	if m.Blocks != 1000 || len(m.Listed.Offset) != 1000 || m.Bytes != 1000*4096 || m.Rest.Blocks != 0 || len(m.Extents) != 1 || m.Extents[0].From != fmt.Sprintf("%#x", from) || m.Extents[0].Bytes != to-from {
		t.Errorf("%d blocks, %d listed, %d bytes in %+v", m.Blocks, len(m.Listed.Offset), m.Bytes, m.Extents)
	}
	for i, offset := range m.Listed.Offset {
		if offset != uint64(i)*8192 || m.Listed.Generation[i] != uint64(501+i) {
			t.Fatalf("block %d lies at %d and is #%d", i, offset, m.Listed.Generation[i])
		}
	}
	// What is still too many is summed up in finer cells, and adds up.
	m = ask[addressMap](t, h, fmt.Sprintf("/map?from=%d&to=%d", uint64(base), uint64(base+20_000*8192)))
	var want [3]uint64
	for i := range 20_000 {
		want[[]int{0, 1, 2}[i%3]] += 4096
	}
	if m.Blocks != 20_000 || m.whole() != want || m.Rest.CellBytes >= whole.Rest.CellBytes {
		t.Errorf("%d blocks, %v, want %v; cells of %d bytes", m.Blocks, m.whole(), want, m.Rest.CellBytes)
	}
}

func TestACloserLookCutsWhatLiesAtItsEnds(t *testing.T) {
	block := core.BlockInfo{Block: core.Block{ID: core.BlockID{Ptr: base, Generation: 1}, Bytes: 1 << 30, Tag: "large", State: core.Live}}
	h := view(t, liveview.Source{Resource: &resource{n: 1, block: func(int) core.BlockInfo { return block }}})
	for _, c := range []struct{ from, to, bytes uint64 }{
		{base + 4096, base + 8192, 4096},
		{base - 1<<20, base + 4096, 4096},
		{base + 1<<30 - 512, base + 1<<31, 1 << 18}, // a part of so long a stretch
		{base + 1<<30, base + 1<<31, 0},
		{0, base, 0},
		{0, ^uint64(0), 1 << 30},
		{base, base + 1, 512},
	} {
		m := ask[addressMap](t, h, fmt.Sprintf("/map?from=%d&to=%d", c.from, c.to))
		if m.Bytes != c.bytes || m.whole()[0] != c.bytes || m.Extents == nil || len(m.Extents) == 0 {
			t.Errorf("%#x to %#x: %d bytes, %v, in %+v; want %d", c.from, c.to, m.Bytes, m.whole(), m.Extents, c.bytes)
		}
	}
	for _, bad := range []string{"from=5&to=5", "from=6&to=5", "from=x&to=5", "from=0&to=-1", "from=0", "from=0&to=1&device=9", ""} {
		if w := get(t, h, "/map?"+bad); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", bad, w.Code, w.Body)
		}
	}
}

// Pages that look at one stretch share its map, and no number of stretches makes
// the server keep more, or list the blocks at the same time.
func TestCloserLooksAreBounded(t *testing.T) {
	var mu sync.Mutex
	listings, running, most := 0, 0, 0
	r := &resource{n: 1, block: func(int) core.BlockInfo {
		mu.Lock()
		listings++
		running++
		most = max(most, running)
		mu.Unlock()
		defer func() { mu.Lock(); running--; mu.Unlock() }()
		return small(0)
	}}
	h := view(t, liveview.Source{Resource: r})
	serial := ask[addressMap](t, h, "/map?from=0&to=4096").Serial
	if w := get(t, h, fmt.Sprintf("/map?from=0&to=4096&map=%d", serial)); w.Body.String() != "null\n" || listings != 1 {
		t.Errorf("asked again: %s, %d listings", w.Body, listings)
	}
	var pages sync.WaitGroup
	for i := range 40 {
		pages.Go(func() { get(t, h, fmt.Sprintf("/map?from=%d&to=%d", base+i*512, base+i*512+4096)) })
	}
	pages.Wait()
	if most != 1 || listings != 41 {
		t.Errorf("%d at a time, %d in all", most, listings)
	}
	before := listings
	if ask[addressMap](t, h, "/map?from=0&to=4096"); listings != before+1 {
		t.Errorf("a map of long ago was kept: %d listings", listings-before)
	}
}
