package cuda

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/fence"
)

// ledgerMemory is memory that exists in a ledger only, on top of that of a resource. It
// complains of whatever breaks the protocol of [memory], and refuses what it is told to.
type ledgerMemory struct {
	t      *testing.T
	under  memory
	locked func(*stream) bool

	mu      sync.Mutex
	next    uint64
	taken   map[uint64]uint64 // sizes, by address
	refuse  int               // so many calls of take and give
	refused int
	closed  bool
}

func (m *ledgerMemory) step(s *stream) error {
	if !m.locked(s) {
		m.t.Error("a step in a stream's order without its lock")
	}
	if m.refuse > 0 {
		m.refuse--
		m.refused++
		return driver.NewError("Refused", driver.InvalidValue)
	}
	return nil
}

func (m *ledgerMemory) take(s *stream, bytes uint64) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		m.t.Error("taken after close")
	}
	if err := m.step(s); err != nil {
		return 0, err
	}
	m.next += 1 << 30
	m.taken[m.next] = bytes
	return m.next, nil
}

func (m *ledgerMemory) give(s *stream, ptr, bytes uint64, _ *fence.Frontier) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if was, ok := m.taken[ptr]; !ok || was != bytes {
		m.t.Errorf("%d bytes given at %#x, where %d are taken", bytes, ptr, was)
	}
	if err := m.step(s); err != nil {
		return err
	}
	delete(m.taken, ptr)
	return nil
}

func (m *ledgerMemory) makeRoom(_ *stream, _ *core.Request, err error) error { return err }

func (m *ledgerMemory) giveAtOnce() bool   { return m.under.giveAtOnce() }
func (m *ledgerMemory) given() func() bool { return m.under.given() }
func (m *ledgerMemory) due() bool          { return m.under.due() }

func (m *ledgerMemory) bind(r *tracker)                 { m.under.bind(r) }
func (m *ledgerMemory) held() uint64                    { return m.under.held() }
func (m *ledgerMemory) shortage() core.OutOfMemoryError { return m.under.shortage() }
func (m *ledgerMemory) shareSet()                       { m.under.shareSet() }

func (m *ledgerMemory) reap() error            { return m.under.reap() }
func (m *ledgerMemory) trim(keep uint64) error { return m.under.trim(keep) }

func (m *ledgerMemory) tick(now time.Time) error { return m.under.tick(now) }

func (m *ledgerMemory) drift() (int64, bool) { return m.under.drift() }

func (m *ledgerMemory) addTo(st *core.Stats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, bytes := range m.taken {
		st.PoolUsed += bytes
	}
}

func (m *ledgerMemory) close() error {
	m.closed = true
	return m.under.close()
}

// ledgerResource is a resource over a ledgerMemory, with leases of streams.
type ledgerResource struct {
	*AsyncResource
	*ledgerMemory
	t       *testing.T
	streams *StreamPool
	leases  []*Lease
}

func newLedgerResource(t *testing.T, leases int) *ledgerResource {
	t.Helper()
	drv, err := sim.Open(sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	streams, err := NewStreamPool(drv, StreamPoolConfig{})
	if err != nil {
		t.Fatal(err)
	}
	async, err := NewAsyncResource(drv, streams, AsyncConfig{ReapInterval: -1})
	if err != nil {
		t.Fatal(err)
	}
	x := &ledgerResource{t: t, AsyncResource: async, streams: streams}
	x.ledgerMemory = &ledgerMemory{t: t, under: async.memory, taken: map[uint64]uint64{}, locked: func(s *stream) bool {
		free := s.TryLock()
		if free {
			s.Unlock()
		}
		return !free
	}}
	async.memory = x.ledgerMemory
	for range leases {
		l, err := streams.Acquire(t.Context(), "ledger")
		if err != nil {
			t.Fatal(err)
		}
		x.leases = append(x.leases, l)
	}
	t.Cleanup(func() {
		for _, l := range x.leases {
			err = errors.Join(err, l.Release())
		}
		ctx := context.Background()
		if err := errors.Join(err, async.Close(ctx), streams.Close(ctx), drv.Close()); err != nil {
			t.Error(err)
		}
	})
	return x
}

func (x *ledgerResource) must(err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
}

func (x *ledgerResource) alloc(stream int, bytes uint64) core.Block {
	x.t.Helper()
	b, err := x.Allocate(x.t.Context(), core.Request{Bytes: bytes, Stream: x.leases[stream].ID()})
	x.must(err)
	return b
}

func (x *ledgerResource) launch(stream int, block core.Block) core.Ticket {
	x.t.Helper()
	ticket, err := x.PrepareUse(x.t.Context(), core.UseRequest{Stream: x.leases[stream].ID(), Launch: "use", Uses: []core.Use{{Block: block.ID, Access: core.Write}}})
	x.must(err)
	return ticket
}

// expect compares the ledger with the books.
func (x *ledgerResource) expect(taken, live, failures int) {
	x.t.Helper()
	drift, err := x.Drift()
	x.must(err)
	st := x.Stats()
	got := fmt.Sprintf("%d taken, %d live, %d failures, drift %d", len(x.taken), st.Live.Blocks, st.Failures, drift.Bytes)
	if want := fmt.Sprintf("%d taken, %d live, %d failures, drift 0", taken, live, failures); got != want || !drift.Known {
		x.t.Errorf("%s; want %s", got, want)
	}
}

func TestATakeThatIsRefusedLeavesNothing(t *testing.T) {
	x := newLedgerResource(t, 1)
	var events [2]uint64
	for i := range events {
		x.refuse = 1
		if _, err := x.Allocate(t.Context(), core.Request{Bytes: 1, Stream: x.leases[0].ID()}); !errors.Is(err, core.ErrDriver) {
			t.Errorf("allocated: %v", err)
		}
		x.expect(0, 0, i+1)
		events[i] = x.Stats().Events
	}
	if events[1] != events[0] { // the first has made the stream's ready point
		t.Errorf("%d events, then %d", events[0], events[1])
	}
}

func TestAGiveThatIsRefusedLeavesTheBlockToItsOwner(t *testing.T) {
	x := newLedgerResource(t, 1)
	b := x.alloc(0, 4096)
	x.refuse = 1
	if _, err := x.Deallocate(t.Context(), b.ID); !errors.Is(err, core.ErrDriver) {
		t.Errorf("freed: %v", err)
	}
	x.expect(1, 1, 1)
	_, err := x.Deallocate(t.Context(), b.ID)
	x.must(err)
	x.expect(0, 0, 1)
	x.must(x.Drain(t.Context()))
}

func TestAGiveThatIsRefusedAtTheEndOfALaunchIsTriedByReaps(t *testing.T) {
	x := newLedgerResource(t, 2)
	b := x.alloc(0, 4096)
	ticket := x.launch(1, b)
	_, err := x.Deallocate(t.Context(), b.ID)
	x.must(err)
	x.refuse = 2
	x.must(x.FinishUse(t.Context(), ticket))
	x.expect(1, 0, 1)
	if err := x.ReapPending(t.Context()); !errors.Is(err, core.ErrDriver) {
		t.Errorf("reaped: %v", err)
	}
	x.expect(1, 0, 1)
	x.must(x.ReapPending(t.Context()))
	x.expect(0, 0, 1)
	x.must(x.Drain(t.Context()))
}

func TestWhatIsTakenWhenTheMemoryIsClosedIsGivenLater(t *testing.T) {
	x := newLedgerResource(t, 1)
	b := x.alloc(0, 4096)
	x.must(x.Close(t.Context()))
	if _, err := x.Allocate(t.Context(), core.Request{Bytes: 1, Stream: x.leases[0].ID()}); !errors.Is(err, core.ErrClosed) {
		t.Errorf("allocated: %v", err)
	}
	_, err := x.Deallocate(t.Context(), b.ID)
	x.must(err)
	if len(x.taken) > 0 {
		t.Errorf("taken: %v", x.taken)
	}
	x.must(x.Drain(t.Context()))
}

// Whatever is done with blocks, and whatever is refused: each comes back once, as it was
// taken, and the books agree at every step.
func TestTheTrackerGivesWhatItTook(t *testing.T) {
	for seed := range uint64(20) {
		x := newLedgerResource(t, 3)
		random := rand.New(rand.NewPCG(seed, 0))
		anywhere := func() core.StreamID { return x.leases[random.IntN(len(x.leases))].ID() }
		var live []core.Block
		var open []core.Ticket
		for range 200 {
			x.refuse = max(0, random.IntN(5)-3)
			var err error
			switch roll, i := random.IntN(8), random.IntN(max(1, len(live))); {
			case roll < 3 || len(live) == 0:
				var b core.Block
				if b, err = x.Allocate(t.Context(), core.Request{Bytes: 1 + random.Uint64N(1<<16), Stream: anywhere()}); err == nil {
					live = append(live, b)
				}
			case roll == 3:
				var ticket core.Ticket
				ticket, err = x.PrepareUse(t.Context(), core.UseRequest{Stream: anywhere(), Uses: []core.Use{{Block: live[i].ID, Access: core.Read}}})
				open = append(open, ticket)
			case roll == 4 && len(open) > 0:
				err = x.FinishUse(t.Context(), open[0])
				open = open[1:]
			case roll == 5:
				err = x.ReapPending(t.Context())
			default:
				if _, err = x.Deallocate(t.Context(), live[i].ID); err == nil {
					live = slices.Delete(live, i, i+1)
				}
			}
			if err != nil && (x.refuse > 0 || !errors.Is(err, core.ErrDriver)) {
				t.Fatalf("seed %d: %v", seed, err)
			}
			x.refuse = 0
			if drift, err := x.Drift(); drift.Bytes != 0 || !drift.Known || err != nil {
				t.Fatalf("seed %d: drift %d, %v, %v", seed, drift.Bytes, drift.Known, err)
			}
		}
		for _, ticket := range open {
			x.must(x.FinishUse(t.Context(), ticket))
		}
		for _, b := range live {
			_, err := x.Deallocate(t.Context(), b.ID)
			x.must(err)
		}
		x.must(x.Drain(t.Context()))
		if len(x.taken) > 0 || x.refused < 10 {
			t.Errorf("seed %d: left %v; %d refused", seed, x.taken, x.refused)
		}
	}
}
