package budget

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func TestARefusalExplainsItself(t *testing.T) {
	d, events := newDevice(), &sink{}
	r := newBudget(t, d, Config{Limit: 100, Events: events})
	mustReserve(t, r, 10)
	mustAllocate(t, r, core.Request{Bytes: 20, Stream: 1, Tag: "index"})
	mustAllocate(t, r, core.Request{Bytes: 10, Stream: 2, Tag: "index"})
	r.Withhold(mustAllocate(t, r, core.Request{Bytes: 5, Stream: 2, Tag: "index"}).ID, core.Quarantined)
	mustAllocate(t, r, core.Request{Bytes: 8, Stream: 1})
	mustFree(t, r, mustAllocate(t, r, core.Request{Bytes: 30, Stream: 2, Tag: "sort"}))

	e := refused(t, r, core.Request{Bytes: 24, Requested: 16, Stream: 1, Tag: "sort"})
	want := core.OutOfBudgetError{Requested: 24, Remaining: 17, Limit: 100, Live: 38, Pending: 30, Quarantined: 5, Claimed: 10, Tag: "sort",
		Holders: []core.Holder{
			{Tag: "index", State: core.Live, Bytes: 30, Blocks: 2},
			{Tag: "sort", State: core.Retired, Bytes: 30, Blocks: 1},
			{Tag: "request", State: core.Claimed, Bytes: 10, Blocks: 1},
			{Tag: names.Untagged, State: core.Live, Bytes: 8, Blocks: 1},
			{Tag: "index", State: core.Quarantined, Bytes: 5, Blocks: 1},
		}}
	if e.Requested != want.Requested || e.Error() != want.Error() || !slices.Equal(e.Holders, want.Holders) {
		t.Errorf("got  %v\nwant %v", e, &want)
	}
	if sum := e.Live + e.Pending + e.Quarantined + e.Claimed; sum != r.Stats().Charged {
		t.Errorf("the parts add up to %d, charged is %d", sum, r.Stats().Charged)
	}
	if d.reaps != 1 {
		t.Errorf("%d reaps for one refusal, want 1", d.reaps)
	}
	if len(events.events) != 1 {
		t.Fatalf("%d events for one refusal", len(events.events))
	}
	ev := events.events[0]
	if ev.Op != oplog.OpRefusal || ev.Layer != "budget" || ev.Bytes != 24 || ev.Requested != 16 || ev.Stream != 1 ||
		ev.Tag != "sort" || ev.Relieved || ev.Time.IsZero() || !errors.Is(ev.Err, core.ErrOutOfBudget) {
		t.Errorf("event %+v", ev)
	}
	if !ev.Span.IsZero() {
		t.Errorf("a refusal outside any trace names %v", ev.Span)
	}
	span := core.SpanRef{TraceID: [16]byte{1}, SpanID: [8]byte{2}}
	_, allocated := r.Allocate(core.WithSpan(t.Context(), span), core.Request{Bytes: 24})
	_, reserved := r.Reserve(core.WithSpan(t.Context(), span), 24, "sort")
	if !errors.Is(allocated, core.ErrOutOfBudget) || !errors.Is(reserved, core.ErrOutOfBudget) || events.events[1].Span != span || events.events[2].Span != span {
		t.Errorf("%v, %v, events %+v", allocated, reserved, events.events[1:])
	}
	if h := r.Holders(); len(h) != 4 || h[2].Tag != names.Untagged || h[3] != (core.Holder{Tag: "index", State: core.Quarantined, Bytes: 5, Blocks: 1}) {
		t.Errorf("all holders: %v", h)
	}
}

// Bytes that are set aside are as much out of reach as those in blocks, and
// somebody's.
func TestARefusalNamesThoseWhoReserved(t *testing.T) {
	r := newBudget(t, newDevice(), Config{Limit: 1000})
	reserve := func(bytes uint64, tag core.Tag) core.ClaimID {
		c := must.Get(r.Reserve(t.Context(), bytes, tag))(t)
		return c.ID
	}
	sort := reserve(500, "sort")
	reserve(200, "sort")
	reserve(50, "")
	drawn := reserve(30, "drawn")
	mustAllocate(t, r, core.Request{Bytes: 100, Claim: sort, Stream: 1, Tag: "sort"})
	mustAllocate(t, r, core.Request{Bytes: 30, Claim: drawn, Stream: 1, Tag: "drawn"})
	must.Do(t, r.ReleaseClaim(t.Context(), reserve(40, "over")))
	want := []core.Holder{
		{Tag: "sort", State: core.Claimed, Bytes: 600, Blocks: 2},
		{Tag: "sort", State: core.Live, Bytes: 100, Blocks: 1},
		{Tag: names.Untagged, State: core.Claimed, Bytes: 50, Blocks: 1},
		{Tag: "drawn", State: core.Live, Bytes: 30, Blocks: 1},
	}
	if e := refused(t, r, core.Request{Bytes: 300, Stream: 1}); !slices.Equal(e.Holders, want) || e.Claimed != 650 || e.Live != 130 {
		t.Errorf("got %v", e)
	}
	if h := r.Holders(); len(h) != 2 {
		t.Errorf("among the blocks: %v", h)
	}
}

// A refusal is kept by whoever remembers it, such as a log; the list of all tags
// must not be kept with it.
func TestARefusalKeepsTheHoldersThatItNamesAndNoOthers(t *testing.T) {
	r := newBudget(t, newDevice(), Config{Limit: 1000})
	for i := range 1000 {
		mustAllocate(t, r, core.Request{Bytes: 1, Stream: 1, Tag: core.Tag(strconv.Itoa(i))})
	}
	if e := refused(t, r, core.Request{Bytes: 1, Stream: 1}); len(e.Holders) != namedHolders || cap(e.Holders) > 16 {
		t.Errorf("it names %d holders and keeps %d", len(e.Holders), cap(e.Holders))
	}
}

// What a guard withholds stays charged and is lent to nobody, until it is freed.
func TestWhatIsWithheldIsToldApart(t *testing.T) {
	d := newDevice()
	r := newBudget(t, d, Config{Limit: 100})
	held := func(states ...core.BlockState) {
		t.Helper()
		var got []core.BlockState
		for _, h := range r.Holders() {
			got = append(got, h.State)
		}
		if !slices.Equal(got, states) {
			t.Errorf("states %v, want %v", got, states)
		}
	}
	b := mustAllocate(t, r, core.Request{Bytes: 60, Stream: 1, Tag: "a"})
	held(core.Live)
	r.Withhold(b.ID, core.Retired) // a launch keeps it
	held(core.Retired)
	r.Withhold(b.ID, core.Quarantined)
	r.Withhold(b.ID, core.Quarantined)
	r.Withhold(b.ID, core.Retired) // overtaken
	held(core.Quarantined)
	wantCharged(t, r, 60)
	if e := refused(t, r, core.Request{Bytes: 50, Stream: 1}); e.Quarantined != 60 || e.Live != 0 || e.Remaining != 40 {
		t.Errorf("explained as %+v", e)
	}
	d.failNext("Deallocate", errInjected)
	if _, err := r.Deallocate(t.Context(), b.ID); !errors.Is(err, errInjected) {
		t.Fatalf("got %v", err)
	}
	held(core.Quarantined)
	mustFree(t, r, b)
	held(core.Retired)
	r.Withhold(b.ID, core.Quarantined) // too late
	held(core.Retired)
	own := mustAllocate(t, r, core.Request{Bytes: 50, Stream: 1, Tag: "own", Withheld: true})
	held(core.Retired, core.Quarantined)
	d.failNext("Allocate", errInjected)
	if _, err := r.Allocate(t.Context(), core.Request{Bytes: 5, Stream: 1, Tag: "own", Withheld: true}); !errors.Is(err, errInjected) {
		t.Fatalf("got %v", err)
	}
	d.pass(1, 1)
	held(core.Quarantined)
	d.atOnce = true
	mustFree(t, r, own)
	held()
	r.Withhold(b.ID, core.Quarantined)
	wantEmpty(t, r)
}

func TestAReapThatHelpsMakesNoRefusal(t *testing.T) {
	d, events := newDevice(), &sink{}
	d.onReap = func() { d.pass(1, 1) }
	r := newBudget(t, d, Config{Limit: 100, Events: events})
	mustFree(t, r, mustAllocate(t, r, core.Request{Bytes: 90, Stream: 1}))
	mustAllocate(t, r, core.Request{Bytes: 90, Stream: 2})
	if d.reaps != 1 || len(events.events) != 0 || r.Stats().Refusals != 0 {
		t.Errorf("%d reaps, %d events, %d refusals", d.reaps, len(events.events), r.Stats().Refusals)
	}
}

func TestAReapHelpsAReservation(t *testing.T) {
	d, events := newDevice(), &sink{}
	r := newBudget(t, d, Config{Limit: 100, Events: events})
	mustFree(t, r, mustAllocate(t, r, core.Request{Bytes: 90, Stream: 1}))
	if _, err := r.Reserve(context.Background(), 90, ""); !errors.Is(err, core.ErrOutOfBudget) {
		t.Fatalf("got %v", err)
	}
	if len(events.events) != 1 || events.events[0].Tag != names.Untagged || events.events[0].Bytes != 90 {
		t.Errorf("events %+v", events.events)
	}
	d.onReap = func() { d.pass(1, 1) }
	mustReserve(t, r, 90)
}

// Other streams allocate, free, reserve and change the limit while a request is refused. The
// figures of each refusal must be of one moment all the same: they leave less than was requested,
// and the holders hold no more than there is.
func TestTheFiguresOfARefusalSayWhyWhateverOthersDoMeanwhile(t *testing.T) {
	const limit, streams = 1000, 4
	d := newDevice()
	for name, c := range map[string]struct {
		upstream core.Resource
		pass     func(core.StreamID)
	}{
		"released at once":    {&leaf{}, func(core.StreamID) {}},
		"pending for a while": {d, func(stream core.StreamID) { d.pass(stream, 1) }},
	} {
		t.Run(name, func(t *testing.T) {
			seed := time.Now().UnixNano()
			r := newBudget(t, c.upstream, Config{Limit: limit})
			var refusals, untrue atomic.Int64
			check := func(err error) {
				if e, ok := errors.AsType[*core.OutOfBudgetError](err); ok {
					refusals.Add(1)
					if err := refuse.Untrue(e); err != nil && untrue.Add(1) == 1 {
						t.Errorf("seed %d: %v", seed, err)
					}
				}
			}
			var group sync.WaitGroup
			for i := range core.StreamID(2 * streams) {
				group.Go(func() {
					rnd := rand.New(rand.NewPCG(uint64(seed), uint64(i)))
					for range 2000 {
						req := core.Request{Bytes: 1 + rnd.Uint64N(limit/2), Stream: i % streams,
							Tag: core.Tag(strconv.Itoa(rnd.IntN(3)))}
						if rnd.IntN(3) == 0 {
							c, err := r.Reserve(context.Background(), req.Bytes, req.Tag)
							if check(err); err == nil {
								req.Claim, req.Requested = c.ID, 1+rnd.Uint64N(req.Bytes)
							}
						}
						b, err := r.Allocate(context.Background(), req)
						if check(err); err == nil {
							_, err = r.Deallocate(context.Background(), b.ID)
							expect.Success(t, err)
						}
						if req.Claim != 0 {
							_ = r.ReleaseClaim(context.Background(), req.Claim)
						}
						if rnd.IntN(50) == 0 {
							r.SetLimit(limit - rnd.Uint64N(limit/4))
						}
						c.pass(core.StreamID(rnd.IntN(streams)))
					}
				})
			}
			group.Wait()
			if refusals.Load() == 0 {
				t.Error("nothing was refused: nothing is tried")
			}
			t.Logf("%d refusals, %d of them untrue", refusals.Load(), untrue.Load())
		})
	}
}
