package stackconformance_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// player plays one random program on a stack and notes all that a caller and an operator can see of
// it: two stacks on which the same program is played must note the same.
type player struct {
	*whole
	t   *testing.T
	rng *rand.Rand
	// lags: the device does its work when it likes. What the host has seen done, and with
	// it where pages come from, then depends on how often the driver is asked. Else it is
	// waited for before each allocation.
	lags    bool
	heard   []core.Block
	leases  []*cuda.Lease
	gone    []core.StreamID
	blocks  []core.Block // all that were ever allocated
	numbers map[core.Generation]int
	claims  []core.Claim
	open    []core.Ticket
	inside  bool // a capture is under way
	notes   []string
	steps   map[string]int
}

var playerTags = []core.Tag{"a", "b", "c", ""}

// note notes something. When a block that other streams have used is released depends on the device, and with it
// whether a refusal has it among the holders.
func (p *player) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if p.lags {
		text = pendingHolder.ReplaceAllString(text, "")
		text = strings.ReplaceAll(text, core.Retired.String(), core.Freed.String())
	}
	p.notes = append(p.notes, text)
}

var pendingHolder = regexp.MustCompile(`(; largest holders:|,) \w+ ` + core.Retired.String() + ` N in N blocks?|, and N more holds? N`)

// digits are what two stacks call differently: addresses, generations, streams, times, sizes.
var digits = regexp.MustCompile(`0x[0-9a-f]+|[0-9]+(\.[0-9]+)?( [KMGT]iB\b| B\b|ns|µs|ms|s\b)?`)

// because is an error as far as two stacks can agree on it: its kinds and its text.
func because(err error) string {
	if err == nil {
		return "ok"
	}
	var kinds []string
	for e := err; e != nil; e = errors.Unwrap(e) {
		kinds = append(kinds, fmt.Sprintf("%T", e))
	}
	return strings.Join(kinds, " ") + ": " + digits.ReplaceAllString(err.Error(), "N")
}

// shown is a block without what differs from stack to stack.
func (p *player) shown(b core.Block) string {
	at := int64(-1)
	if b.ID.Ptr != 0 && len(p.blocks) > 0 && !p.lags {
		at = int64(b.ID.Ptr - p.blocks[0].ID.Ptr)
	}
	return fmt.Sprintf("block %d at %d on %d: %d of %d bytes, align %d, %q, %v", p.numbers[b.ID.Generation], at, p.streamNumber(b.ID.AllocStream), b.Requested, b.Bytes, b.Align, b.Tag, b.State)
}

func (p *player) streamNumber(id core.StreamID) int {
	if i := slices.Index(p.gone, id); i >= 0 {
		return 100 + i
	}
	return slices.IndexFunc(p.leases, func(l *cuda.Lease) bool { return l.ID() == id })
}

// stream is most often a leased one.
func (p *player) stream() core.StreamID {
	switch n := p.rng.IntN(40); {
	case n == 0 && len(p.gone) > 0:
		return p.gone[p.rng.IntN(len(p.gone))]
	case n < 6:
		return core.DefaultStream
	case n == 6:
		return 1 << 40
	}
	return p.leases[p.rng.IntN(len(p.leases))].ID()
}

func (p *player) allocate() {
	req := core.Request{Bytes: 1 + p.rng.Uint64N(1<<(6+p.rng.IntN(14))), Stream: p.stream(), Tag: playerTags[p.rng.IntN(len(playerTags))]}
	switch p.rng.IntN(30) {
	case 0:
		req.Bytes = 0
	case 1:
		req.Bytes = 1 << 30
	case 2:
		req.Align = 3
	case 3:
		req.Align = 512
	case 4, 5:
		req.Align = 1 << p.rng.IntN(9)
	case 6:
		req.Requested = req.Bytes + 1
	case 7:
		req.Requested = max(1, req.Bytes/2)
	case 8:
		req.Bytes = 3<<20 + p.rng.Uint64N(4<<20)
	case 10, 11, 12, 13:
		if len(p.claims) > 0 {
			req.Claim = p.claims[p.rng.IntN(len(p.claims))].ID
		}
	}
	p.catchUp()
	b, err := p.Runtime.Allocate(context.Background(), req)
	if err == nil {
		p.numbers[b.ID.Generation] = len(p.blocks)
		p.blocks = append(p.blocks, b)
	}
	p.note("allocate %s, %s", p.shown(b), because(err))
}

// catchUp waits until the device has done everything, and the host knows.
func (p *player) catchUp() {
	if !p.lags {
		p.waitForDevice()
	}
}

func (p *player) waitForDevice() {
	if p.inside {
		return
	}
	for _, err := range []error{p.Sim.Synchronize(), p.Runtime.ReapPending(context.Background())} {
		must.Do(p.t, err)
	}
}

// any is one of the newest blocks, live or not.
func (p *player) any() (core.Block, bool) {
	if len(p.blocks) == 0 {
		return core.Block{}, false
	}
	last := min(len(p.blocks), 40)
	return p.blocks[len(p.blocks)-1-p.rng.IntN(last)], true
}

func (p *player) free() {
	b, ok := p.any()
	if !ok {
		return
	}
	id := b.ID
	switch p.rng.IntN(40) {
	case 0:
		id.Ordinal++
	case 1:
		id.Generation = 1 << 62
	case 2:
		id.Ptr += b.Bytes
	case 3:
		id.AllocStream = p.stream()
	case 4:
		id.Ptr += b.Bytes / 2
	}
	freed, err := p.Runtime.Deallocate(context.Background(), id)
	p.note("free %d: %s, %s, then %v", p.numbers[b.ID.Generation], p.shown(freed), because(err), p.Runtime.State(b.ID))
}

func (p *player) uses() (uses []core.Use) {
	for range 1 + p.rng.IntN(3) {
		if b, ok := p.any(); ok {
			uses = append(uses, core.Use{Block: b.ID, Access: []core.Access{core.Read, core.Write, core.ReadWrite}[p.rng.IntN(3)]})
		}
	}
	return uses
}

// pairs is the steady state of one stream, with whatever is open and short by now.
func (p *player) pairs() {
	stream, sizes := p.leases[p.rng.IntN(len(p.leases))].ID(), [2]uint64{1 + p.rng.Uint64N(4096), 1 + p.rng.Uint64N(4096)}
	p.waitForDevice() // where it lags, the frees that wait; then the stream keeps blocks, and addresses depend on that
	for range 8 {
		p.catchUp()
		b, err := p.Runtime.Allocate(context.Background(),
			core.Request{Bytes: sizes[p.rng.IntN(2)], Stream: stream, Tag: "a"})
		if err != nil {
			p.note("pair: %s", because(err))
			continue
		}
		p.numbers[b.ID.Generation] = len(p.blocks)
		p.blocks = append(p.blocks, b)
		freed, err := p.Runtime.Deallocate(context.Background(), b.ID)
		p.note("pair of %s, freed %s, %s", p.shown(b), p.shown(freed), because(err))
	}
}

func (p *player) launch() {
	stream, uses := p.stream(), p.uses()
	ticket, err := p.Runtime.PrepareUse(context.Background(), core.UseRequest{Stream: stream, Launch: "launch", Uses: uses}) // Launch would wait for what is open
	if err == nil {
		handle, failed := p.Streams.Handle(stream)
		for _, u := range uses {
			if u.Access != core.Read && failed == nil { // the oracle sees who else touches it
				failed = p.Sim.CopyToDeviceAsync(u.Block.Ptr, bytes.Clone([]byte{1}), handle)
			}
		}
		err = errors.Join(failed, p.Runtime.FinishUse(context.Background(), ticket))
	}
	p.note("launch of %d: %s", len(uses), because(err))
}

func (p *player) prepare() {
	ticket, err := p.Runtime.PrepareUse(context.Background(), core.UseRequest{Stream: p.stream(), Launch: "open", Uses: p.uses()})
	if err == nil {
		p.open = append(p.open, ticket)
	}
	p.note("prepare: %s", because(err))
}

func (p *player) end() {
	if len(p.open) == 0 {
		return
	}
	i, end := p.rng.IntN(len(p.open)), p.Runtime.FinishUse
	if p.rng.IntN(3) == 0 {
		end = p.Runtime.AbortUse
	}
	err := end(context.Background(), p.open[i])
	p.open = slices.Delete(p.open, i, i+1)
	p.note("end: %s", because(err))
}

func (p *player) reserve() {
	if len(p.claims) > 4 || p.rng.IntN(2) == 0 && len(p.claims) > 0 {
		i := p.rng.IntN(len(p.claims))
		p.note("release claim: %s", because(p.Runtime.ReleaseClaim(context.Background(), p.claims[i].ID)))
		if p.rng.IntN(3) > 0 { // or else it is named once more
			p.claims = slices.Delete(p.claims, i, i+1)
		}
		return
	}
	claim, err := p.Runtime.Reserve(context.Background(), 1+p.rng.Uint64N(4<<20), playerTags[p.rng.IntN(len(playerTags))])
	if err == nil {
		p.claims = append(p.claims, claim)
	}
	p.note("reserve: %s", because(err))
}

func (p *player) setLimit() {
	p.budget.SetLimit([]uint64{limit, limit / 4, 1 << 20, 8 << 10, limit}[p.rng.IntN(5)])
}

func (p *player) setMode() {
	err := p.guard.SetMode(context.Background(), []debugguard.Mode{debugguard.Off, debugguard.Ledger, debugguard.Ledger, debugguard.Sample}[p.rng.IntN(4)])
	p.note("switch: %s", because(err))
}

func (p *player) huntTags() {
	if p.rng.IntN(3) == 0 {
		p.guard.HuntTags("c")
		return
	}
	p.guard.HuntTags()
}

func (p *player) renew() {
	i := p.rng.IntN(len(p.leases))
	err := p.leases[i].Release()
	p.note("give back %d: %s", i, because(err))
	if err != nil {
		return
	}
	p.gone = append(p.gone, p.leases[i].ID())
	if p.leases[i], err = p.Streams.TryAcquire(context.Background(), "renewed"); err != nil {
		p.t.Fatal(err)
	}
}

func (p *player) capture() {
	if p.inside {
		return
	}
	p.inside = true
	if !p.lags { // as if a stream captured that synchronises with the default stream
		p.faults.FailEvery(drivertest.StreamCapturing, driver.CaptureImplicit)
		defer p.faults.Clear()
	}
	graph, err := p.leases[p.rng.IntN(len(p.leases))].Capture(context.Background(), "graph", nil, func(driver.Stream) error {
		for range p.rng.IntN(6) {
			if p.rng.IntN(2) == 0 {
				p.allocate()
			} else {
				p.free()
			}
		}
		return nil
	})
	p.inside = false
	p.note("capture: %s", because(err))
	if err == nil {
		p.note("close: %s", because(graph.Close()))
	}
}

// noteReleased notes what was released since the last time, but for what the device does when it likes. What
// several looks find completed one may find at once.
func (p *player) noteReleased() {
	if p.lags {
		return
	}
	var released []int
	for _, b := range p.heard {
		if n, known := p.numbers[b.ID.Generation]; known {
			released = append(released, n)
		}
	}
	slices.Sort(released)
	p.note("released %v", released)
	p.heard = nil
}

func (p *player) look() {
	p.waitForDevice()
	s := p.Runtime.Stats()
	s.OwnPool.Steals.Time, s.OwnPool.Remaps.Time, s.OwnPool.Growths.Time, s.OwnPool.Trims.Time = 0, 0, 0, 0
	s.WaitsQueued, s.WaitsElided = 0, 0 // a use that the host has seen done by then needs none
	s.Events = 0                        // how many events are kept for later is of the way
	if p.lags {
		s.OwnPool, s.Reserved, s.ReservedHigh, s.Cached, s.PoolUsedHigh, s.PeakOutstanding = core.OwnPoolStats{}, 0, 0, 0, 0, 0
	}
	freed := s.FreeToReusable.Count()
	s.FreeToReusable = core.Durations{}
	p.note("stats %+v, %d times from free to reusable", s, freed)
	p.note("holders %v", p.budget.Holders())
	p.note("guard %+v", p.guard.GuardStats())
	o := p.calls.Operations()
	for _, op := range []oplog.Op{oplog.OpAllocate, oplog.OpDeallocate, oplog.OpPrepare, oplog.OpFinish, oplog.OpReserve} {
		p.note("%v: %d calls, %d succeeded", op, o.Calls(op), o.Succeeded(op))
	}
	var freedOn []core.FreeCounters
	for _, l := range p.leases {
		freedOn = append(freedOn, p.Runtime.Resource().FreedOn(l.ID()))
	}
	p.note("freed on the streams: %v", freedOn)
}

// history is what the log kept, without reaps, of which waiting makes as many as it takes. Records
// of one instant have no order.
func (p *player) history() {
	var lines []string
	for _, e := range p.ring.Events() {
		if e.Op == oplog.OpReap {
			continue
		}
		number, known := p.numbers[e.Block.Generation]
		if !known {
			number = -1
		}
		lines = append(lines, fmt.Sprintf("record %v of block %d on %d: %d of %d bytes, %q, %s", e.Op, number, p.streamNumber(e.Stream), e.Requested, e.Bytes, e.Tag, because(e.Err)))
	}
	slices.Sort(lines)
	p.notes = append(p.notes, lines...)
}

func (p *player) step() {
	for _, s := range []struct {
		name   string
		chance int
		do     func()
	}{
		{"allocate", 38, p.allocate}, {"free", 34, p.free}, {"pairs", 10, p.pairs}, {"launch", 8, p.launch}, {"prepare", 3, p.prepare}, {"end", 4, p.end},
		{"reserve", 3, p.reserve}, {"limit", 1, p.setLimit}, {"mode", 1, p.setMode}, {"tags", 1, p.huntTags}, {"lease", 1, p.renew},
		{"capture", 1, p.capture}, {"look", 2, p.look}, {"reap", 2, func() { p.note("reap: %s", because(p.Runtime.ReapPending(context.Background()))) }},
	} {
		if p.rng.IntN(100) < s.chance {
			p.steps[s.name]++
			p.catchUp()
			s.do()
			p.catchUp()
			p.noteReleased()
		}
	}
}

// play plays the program of a seed and returns what it noted.
func play(t *testing.T, s *whole, seed uint64, steps int, lags bool) *player {
	p := &player{whole: s, t: t, lags: lags, rng: rand.New(rand.NewPCG(seed, 1)), numbers: map[core.Generation]int{}, steps: map[string]int{}}
	p.numbers[0] = -1
	p.Backend.Subscribe(hears(func(b core.Block) { p.heard = append(p.heard, b) }))
	for range 4 {
		p.leases = append(p.leases, s.Lease(t, "player"))
	}
	for range steps {
		p.step()
	}
	p.history()
	p.finish()
	return p
}

type hears func(core.Block)

func (h hears) Released(b core.Block) { h(b) }

// finish gives everything back.
func (p *player) finish() {
	for len(p.open) > 0 {
		p.end()
	}
	for _, c := range p.claims {
		_ = p.Runtime.ReleaseClaim(context.Background(), c.ID) // some are
	}
	for _, b := range p.blocks {
		if p.Runtime.State(b.ID) == core.Live {
			_, err := p.Runtime.Deallocate(context.Background(), b.ID)
			p.note("last free: %s", because(err))
		}
	}
	p.note("drain: %s", because(p.Runtime.Drain(context.Background())))
	p.look()
	p.lags = false
	p.noteReleased()
	if s := p.Runtime.Stats(); s.Outstanding() != (core.Amount{}) || s.Charged != 0 || s.Underflows != 0 {
		p.t.Errorf("at the end %+v are held, %d bytes charged, %d underflows", s.Outstanding(), s.Charged, s.Underflows)
	}
	if drift, err := p.Backend.Drift(); err != nil || drift.Known && drift.Bytes != 0 {
		p.t.Errorf("at the end the drift is %d: %v", drift.Bytes, err)
	}
	for _, l := range p.leases {
		_ = l.Release()
	}
}
