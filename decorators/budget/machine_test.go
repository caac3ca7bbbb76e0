package budget

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// A failure prints the seed with which rapid replays it.
func TestTheLedgerAgreesWithASimpleModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newMachine(t)
		t.Repeat(map[string]func(*rapid.T){
			"allocate": s.allocate, "fill": s.fill, "fail": s.fail, "free": s.free, "pass": s.pass, "hold": s.hold, "letGo": s.letGo,
			"reserve": s.reserve, "releaseClaim": s.releaseClaim, "setLimit": s.setLimit, "": s.check,
		})
		s.finish(t)
	})
}

// machine runs budget and model side by side.
type machine struct {
	device *device
	budget *Resource
	model  model
}

func newMachine(t *rapid.T) *machine {
	s := &machine{device: newDevice(), model: model{limit: 100, loans: map[modelPurse]uint64{}}}
	r := must.Get(New(s.device, Config{Limit: 100}))(t)
	s.budget = r
	return s
}

func (s *machine) stream(t *rapid.T) core.StreamID {
	return core.StreamID(rapid.IntRange(1, 3).Draw(t, "stream"))
}

func (s *machine) request(t *rapid.T) core.Request {
	size := rapid.OneOf(rapid.Uint64Range(1, 60), rapid.Uint64Range(1, 4)) // small ones are kept as credit
	req := core.Request{Requested: size.Draw(t, "requested"), Stream: s.stream(t)}
	req.Tag = rapid.SampledFrom([]core.Tag{"a", "b"}).Draw(t, "tag")
	req.Bytes = req.Requested
	if n := len(s.model.claims); n > 0 && rapid.Bool().Draw(t, "claimed") {
		req.Claim = s.model.claims[rapid.IntRange(0, n-1).Draw(t, "claim")].id
		req.Bytes += rapid.Uint64Range(0, 10).Draw(t, "padding")
	}
	return req
}

func (s *machine) allocate(t *rapid.T) { s.ask(t, s.request(t)) }

// fill asks for all that is left, credit of other streams included.
func (s *machine) fill(t *rapid.T) {
	if room := less(s.model.limit, s.model.charged()-s.model.lent()); room > 0 {
		s.ask(t, core.Request{Requested: room, Bytes: room, Stream: s.stream(t), Tag: "a"})
	}
}

func (s *machine) ask(t *rapid.T, req core.Request) {
	before := s.budget.ledger.used.Load()
	fits := s.model.admits(req)
	b, err := s.budget.Allocate(context.Background(), req)
	if fits != (err == nil) || err != nil && !isRefusal(err) {
		t.Fatalf("%+v: got %v, the model says it fits: %v", req, err, fits)
	}
	if err != nil {
		return
	}
	if used := s.budget.ledger.used.Load(); used > max(before, s.model.limit) {
		t.Fatalf("used grew from %d to %d beyond the limit %d", before, used, s.model.limit)
	}
	s.model.blocks = append(s.model.blocks, &modelBlock{id: b.ID, tag: req.Tag, claim: req.Claim, drawn: req.Requested, padding: req.Bytes - req.Requested})
}

func (s *machine) fail(t *rapid.T) {
	op := rapid.SampledFrom([]string{"Allocate", "Deallocate"}).Draw(t, "op")
	s.device.failNext(op, errInjected)
	defer func() { _ = s.device.take(op) }()
	if op == "Allocate" {
		_, err := s.budget.Allocate(context.Background(), s.request(t))
		if err == nil {
			t.Fatal("an injected failure was lost")
		}
		return
	}
	if b := s.pick(t); b != nil {
		if _, err := s.budget.Deallocate(context.Background(), b.id); err != errInjected {
			t.Fatalf("got %v", err)
		}
	}
}

func (s *machine) pick(t *rapid.T) *modelBlock {
	var live []*modelBlock
	for _, b := range s.model.blocks {
		if !b.freed {
			live = append(live, b)
		}
	}
	if len(live) == 0 {
		return nil
	}
	return rapid.SampledFrom(live).Draw(t, "block")
}

func (s *machine) free(t *rapid.T) {
	b := s.pick(t)
	if b == nil {
		return
	}
	must.Get(s.budget.Deallocate(context.Background(), b.id))(t)
	b.freed, b.held = true, s.device.hold
}

func (s *machine) pass(t *rapid.T) {
	stream, n := s.stream(t), rapid.IntRange(1, 3).Draw(t, "frees")
	var order []core.Generation
	for _, b := range s.device.queues[stream][:min(n, len(s.device.queues[stream]))] {
		order = append(order, b.ID.Generation)
	}
	s.device.pass(stream, n)
	s.model.released(stream, order)
}

func (s *machine) hold(*rapid.T) { s.device.hold = !s.device.hold }

func (s *machine) letGo(t *rapid.T) {
	stream := s.stream(t)
	s.device.letGo(stream)
	for _, b := range s.model.blocks {
		if b.id.AllocStream == stream {
			b.held = false
		}
	}
}

func (s *machine) reserve(t *rapid.T) {
	n := rapid.Uint64Range(1, 60).Draw(t, "bytes")
	fits := s.model.charged()-s.model.lent()+n <= s.model.limit
	c, err := s.budget.Reserve(context.Background(), n, "claim")
	if fits != (err == nil) {
		t.Fatalf("Reserve(%d): got %v, the model says it fits: %v", n, err, fits)
	}
	if err == nil {
		s.model.claims = append(s.model.claims, &modelClaim{c.ID, n})
	}
}

func (s *machine) releaseClaim(t *rapid.T) {
	if len(s.model.claims) == 0 {
		return
	}
	i := rapid.IntRange(0, len(s.model.claims)-1).Draw(t, "claim")
	must.Do(t, s.budget.ReleaseClaim(context.Background(), s.model.claims[i].id))
	s.model.claims = append(s.model.claims[:i], s.model.claims[i+1:]...)
}

func (s *machine) setLimit(t *rapid.T) {
	s.model.limit = rapid.Uint64Range(1, 150).Draw(t, "limit")
	s.budget.SetLimit(s.model.limit)
}

func (s *machine) check(t *rapid.T) {
	stats, m := s.budget.Stats(), &s.model
	if stats.Charged != m.charged() || lentBy(s.budget) != m.lent() || stats.Underflows != 0 {
		t.Fatalf("charged %d, lent %d, underflows %d; want %d, %d, 0",
			stats.Charged, lentBy(s.budget), stats.Underflows, m.charged(), m.lent())
	}
	if stats.Claims != uint64(len(m.claims)) || stats.Claimed != m.unspent() || stats.Limit != m.limit {
		t.Fatalf("%d claims, %d unspent, limit %d; want %d, %d, %d",
			stats.Claims, stats.Claimed, stats.Limit, len(m.claims), m.unspent(), m.limit)
	}
	held := map[core.Holder]sum{}
	for _, b := range m.blocks {
		k := core.Holder{Tag: b.tag, State: core.Live}
		if b.freed {
			k.State = core.Retired
		}
		total := held[k]
		total.add(b.drawn + b.padding)
		held[k] = total
	}
	holders := s.budget.Holders()
	for _, h := range holders {
		if held[core.Holder{Tag: h.Tag, State: h.State}] != (sum{h.Bytes, h.Blocks}) {
			t.Fatalf("holder %+v, want %+v", h, held)
		}
	}
	if len(holders) != len(held) {
		t.Fatalf("holders %v, want %v", holders, held)
	}
}

func (s *machine) finish(t *rapid.T) {
	s.device.hold = false
	for _, b := range s.model.blocks {
		if !b.freed {
			must.Get(s.budget.Deallocate(context.Background(), b.id))(t)
		}
	}
	for stream := core.StreamID(1); stream <= 3; stream++ {
		s.device.letGo(stream)
		s.device.pass(stream, len(s.device.queues[stream]))
	}
	for _, c := range s.model.claims {
		must.Do(t, s.budget.ReleaseClaim(context.Background(), c.id))
	}
	if stats, lent := s.budget.Stats(), lentBy(s.budget); stats.Charged != 0 || stats.Underflows != 0 || lent != 0 {
		t.Fatalf("at the end charged %d, lent %d, underflows %d", stats.Charged, lent, stats.Underflows)
	}
}
