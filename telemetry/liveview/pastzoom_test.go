package liveview_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/telemetry/liveview"
)

type past struct {
	T                            []float64
	Tags                         []string
	Live                         [][]uint64
	Others, Quarantined, Pending []uint64
}

// remembered is a device that holds and remembers so much.
func remembered(p liveview.Past, holders ...core.Holder) liveview.Source {
	return liveview.Source{Resource: &resource{}, Holders: func() []core.Holder { return holders }, Past: func() liveview.Past { return p }}
}

func happened(op oplog.Op, at time.Time, g core.Generation, tag core.Tag, bytes uint64) oplog.Event {
	return oplog.Event{Op: op, Time: at, Block: core.BlockID{Ptr: uint64(g) << 20, Generation: g}, Tag: tag, Bytes: bytes}
}

func TestThePastIsBoundedWhateverTheLogHas(t *testing.T) {
	const events = 20_000
	begin := time.Now().Add(-10 * time.Minute)
	var p liveview.Past
	for i := range events {
		tag := core.Tag(fmt.Sprintf("%d\u202e<script>\"'\x00%s", i, strings.Repeat("long", 200)))
		p.Events = append(p.Events, happened(oplog.OpAllocate, begin.Add(time.Duration(i)*25*time.Millisecond), core.Generation(i+1), tag, 1000))
	}
	holders := []core.Holder{}
	for i := range p.Events {
		holders = append(holders, core.Holder{Tag: p.Events[i].Tag, State: core.Live, Bytes: 1000, Blocks: 1})
	}
	h := view(t, remembered(p, holders...))
	if size := get(t, h, "/past").Body.Len(); size > 128<<10 {
		t.Errorf("%d bytes", size)
	}
	got := ask[past](t, h, "/past")
	if len(got.T) != 300 || len(got.Tags) != 16 || len(got.Live) != 16 || got.Pending != nil {
		t.Fatalf("%d points, %d tags, %d rows, pending %v", len(got.T), len(got.Tags), len(got.Live), got.Pending)
	}
	sum := func(i int) (n uint64) {
		for _, row := range got.Live {
			n += row[i]
		}
		return n + got.Others[i]
	}
	if sum(299) != events*1000 || sum(0) != 1000 {
		t.Errorf("it begins with %d bytes and ends with %d", sum(0), sum(299))
	}
	for i := range 299 {
		if sum(i) > sum(i+1) {
			t.Fatalf("nothing was freed, and from point %d on there were %d and then %d bytes", i, sum(i), sum(i+1))
		}
	}
}

// The end is what is held, and the beginning where both the log and the guard know
// everything.
func TestThePastEndsAsItIsAndBeginsWhereBothKnow(t *testing.T) {
	now := time.Now()
	ago := func(s int) time.Time { return now.Add(-time.Duration(s) * time.Second) }
	const own = core.Tag("canary")
	p := liveview.Past{Releases: true, OwnTag: own, EventsSince: ago(200), StaysSince: ago(100),
		Events: []oplog.Event{
			happened(oplog.OpAllocate, ago(150), 1, "before", 1<<20),
			happened(oplog.OpAllocate, ago(80), 2, "a", 4096),
			happened(oplog.OpAllocate, ago(70), 3, own, 512),
			happened(oplog.OpDeallocate, ago(20), 2, "a", 4096),
			happened(oplog.OpRelease, ago(10), 2, "a", 4096),
			{Op: oplog.OpAllocate, Time: ago(60), Tag: "a", Bytes: 1 << 30, Err: core.ErrOutOfMemory},
		},
		Stays: []liveview.Stay{{Tag: "a", Bytes: 4096, From: ago(40), Until: ago(20)}, {Tag: "b", Bytes: 100, From: ago(30)}},
	}
	got := ask[past](t, view(t, remembered(p, core.Holder{Tag: "before", State: core.Live, Bytes: 1 << 20},
		core.Holder{Tag: own, State: core.Quarantined, Bytes: 512}, core.Holder{Tag: "b", State: core.Quarantined, Bytes: 100})), "/past")
	if since := float64(now.UnixMilli())/1e3 - got.T[0]; since < 99 || since > 101 {
		t.Errorf("it begins %v s ago", since)
	}
	row := func(tag string) []uint64 {
		for i := range got.Tags {
			if got.Tags[i] == tag {
				return got.Live[i]
			}
		}
		return make([]uint64, 300)
	}
	for _, c := range []struct {
		ago                                float64
		before, a, b, quarantined, pending uint64
	}{
		{99, 1 << 20, 0, 100, 0, 0},
		{75, 1 << 20, 4096, 100, 0, 0},
		{50, 1 << 20, 4096, 100, 512, 0},
		{35, 1 << 20, 0, 100, 512 + 4096, 0},
		{25, 1 << 20, 0, 0, 512 + 4096 + 100, 0},
		{15, 1 << 20, 0, 0, 512 + 100, 4096},
		{0, 1 << 20, 0, 0, 512 + 100, 0},
	} {
		i := 0
		for i < 299 && got.T[i] < got.T[299]-c.ago {
			i++
		}
		if row("before")[i] != c.before || row("a")[i] != c.a || row("b")[i] != c.b || got.Quarantined[i] != c.quarantined || got.Pending[i] != c.pending {
			t.Errorf("%v s ago: before %d, a %d, b %d, quarantined %d, pending %d; want %+v", c.ago, row("before")[i], row("a")[i], row("b")[i], got.Quarantined[i], got.Pending[i], c)
		}
	}
}

func TestWhereNobodyKeepsAHistoryThereIsNone(t *testing.T) {
	h := view(t, liveview.Source{Resource: &resource{}})
	if w := get(t, h, "/past"); w.Code != http.StatusNotFound {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	h = view(t, remembered(liveview.Past{}))
	if got := ask[past](t, h, "/past"); got.T == nil || len(got.T) != 0 || got.Live == nil {
		t.Errorf("%+v", got)
	}
	if w := get(t, h, "/past?device=7"); w.Code != http.StatusBadRequest {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

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
