package liveview_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
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

func happened(op core.Op, at time.Time, g core.Generation, tag core.Tag, bytes uint64) core.Event {
	return core.Event{Op: op, Time: at, Block: core.BlockID{Ptr: uint64(g) << 20, Generation: g}, Tag: tag, Bytes: bytes}
}

func TestThePastIsBoundedWhateverTheLogHas(t *testing.T) {
	const events = 20_000
	begin := time.Now().Add(-10 * time.Minute)
	var p liveview.Past
	for i := range events {
		tag := core.Tag(fmt.Sprintf("%d\u202e<script>\"'\x00%s", i, strings.Repeat("long", 200)))
		p.Events = append(p.Events, happened(core.OpAllocate, begin.Add(time.Duration(i)*25*time.Millisecond), core.Generation(i+1), tag, 1000))
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
		Events: []core.Event{
			happened(core.OpAllocate, ago(150), 1, "before", 1<<20),
			happened(core.OpAllocate, ago(80), 2, "a", 4096),
			happened(core.OpAllocate, ago(70), 3, own, 512),
			happened(core.OpDeallocate, ago(20), 2, "a", 4096),
			happened(core.OpRelease, ago(10), 2, "a", 4096),
			{Op: core.OpAllocate, Time: ago(60), Tag: "a", Bytes: 1 << 30, Err: core.ErrOutOfMemory},
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
