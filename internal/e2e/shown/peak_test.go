package shown_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// What a guard holds back is live to the layers below, and nobody's: the peak of
// what callers had is theirs alone, whatever the modes were meanwhile.
func TestThePeakNeverFallsWhenTheGuardHoldsABlockBack(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Guard: "hunt"})
	s := e2e.Lease(t, rt, "s")
	guarded := e2e.Allocate(t, rt, 4096, s.ID(), "guarded")
	e2e.Succeed(t, "switching", rt.Guard().Apply(t.Context(), debugguard.Setting{Mode: debugguard.Ledger}))
	e2e.Free(t, rt, e2e.Allocate(t, rt, 1<<30, s.ID(), "large"))
	ticket := must.Get(rt.Core().PrepareUse(t.Context(), core.UseRequest{Stream: s.ID(), Uses: []core.Use{{Block: guarded.ID, Access: core.Write}}}))(t)
	e2e.Free(t, rt, guarded)
	st := rt.Stats()
	if st.PeakRequested != 1<<30+4096 {
		t.Errorf("the peak is %d, it was %d", st.PeakRequested, 1<<30+4096)
	}
	if red := st.PeakBytes - st.PeakRequested; red == 0 || red > 1<<10 || st.PeakOutstanding != st.PeakBytes {
		t.Errorf("the peak is %d with red zones, and %d of all that was held", st.PeakBytes, st.PeakOutstanding)
	}
	e2e.Succeed(t, "finishing", rt.Core().FinishUse(t.Context(), ticket))
}

// peakModel is what a program has, and the most that it had.
type peakModel struct {
	*testing.T
	rt         *fencepost.Runtime
	random     *rand.Rand
	stream     core.StreamID
	blocks     []core.Block
	tickets    []core.Ticket
	live, peak uint64
	// bytes are the peak of what was live between steps, with red zones.
	bytes  uint64
	fenced bool
}

func (m *peakModel) step() string {
	switch n := m.random.IntN(10); {
	case n < 4 || len(m.blocks) == 0:
		size := uint64(1 + m.random.IntN(1<<uint(1+m.random.IntN(18))))
		m.blocks = append(m.blocks, e2e.Allocate(m.T, m.rt, size, m.stream, "model"))
		m.live += size
		m.peak = max(m.peak, m.live)
		return fmt.Sprint("allocate ", size)
	case n < 7:
		i := m.random.IntN(len(m.blocks))
		b := m.blocks[i]
		m.blocks = slices.Delete(m.blocks, i, i+1)
		e2e.Free(m.T, m.rt, b)
		m.live -= b.Requested
		return fmt.Sprint("free ", b.Requested)
	case n < 8 && m.fenced && len(m.tickets) < 3:
		b := m.blocks[m.random.IntN(len(m.blocks))]
		ticket, err := m.rt.Core().PrepareUse(m.Context(), core.UseRequest{Stream: m.stream, Launch: "model", Uses: []core.Use{{Block: b.ID, Access: core.Write}}})
		e2e.Succeed(m.T, "preparing", err)
		m.tickets = append(m.tickets, ticket)
		return "prepare"
	case n < 9 && len(m.tickets) > 0:
		e2e.Succeed(m.T, "finishing", m.rt.Core().FinishUse(m.Context(), m.tickets[0]))
		m.tickets = m.tickets[1:]
		return "finish"
	}
	return m.change()
}

func (m *peakModel) change() string {
	switch m.random.IntN(8) {
	case 0:
		e2e.Succeed(m.T, "reaping", m.rt.Core().Resource().ReapPending(m.Context()))
		return "reap"
	case 1: // until nothing is left that a guard knows of
		m.end()
		e2e.Succeed(m.T, "draining", m.rt.Drain(m.Context()))
		e2e.Succeed(m.T, "switching off", m.rt.Guard().Apply(m.Context(), debugguard.Setting{}))
		return "quiet, off"
	}
	text := e2e.GuardSettings[m.random.IntN(len(e2e.GuardSettings))]
	setting, err := debugguard.ParseMode(text)
	e2e.Succeed(m.T, "reading "+text, err)
	e2e.Succeed(m.T, "switching to "+text, m.rt.Guard().Apply(m.Context(), setting))
	return text
}

// end gives back all there is.
func (m *peakModel) end() {
	for _, ticket := range m.tickets {
		e2e.Succeed(m.T, "finishing", m.rt.Core().FinishUse(m.Context(), ticket))
	}
	e2e.Free(m.T, m.rt, m.blocks...)
	m.blocks, m.tickets, m.live = nil, nil, 0
}

func TestThePeakIsTheMostThatCallersHadInEveryMode(t *testing.T) {
	runs := 25
	if testing.Short() {
		runs = 5
	}
	for _, backend := range []fencepost.Backend{fencepost.Async, fencepost.Pool, fencepost.Direct} {
		for range runs {
			seed := rand.Uint64()
			t.Run(fmt.Sprint(backend, " ", seed), func(t *testing.T) {
				rt := e2e.Open(t, fencepost.Config{Guard: "off", Resource: backend, GuardConfig: debugguard.Config{QuarantineBytes: 1 << 20}})
				m := &peakModel{T: t, rt: rt, random: rand.New(rand.NewPCG(seed, 0)), stream: e2e.Lease(t, rt, "s").ID(), fenced: backend == fencepost.Async}
				var trail []string
				for range 150 {
					trail = append(trail, m.step())
					st := rt.Stats()
					if m.bytes = max(m.bytes, st.Live.Bytes); st.PeakBytes != m.bytes || st.PeakOutstanding < st.Outstanding().Bytes || st.PeakOutstanding < m.bytes {
						t.Fatalf("peaks %d live, %d held, want %d, at least %d; the last steps: %q", st.PeakBytes, st.PeakOutstanding, m.bytes, st.Outstanding().Bytes, trail[max(0, len(trail)-12):])
					}
					if st.PeakRequested != m.peak || st.Live.Requested != m.live {
						t.Fatalf("peak %d, want %d; live %d, want %d; the last steps: %q", st.PeakRequested, m.peak, st.Live.Requested, m.live, trail[max(0, len(trail)-12):])
					}
				}
				m.end()
			})
		}
	}
}

// While goroutines allocate and free and the modes change, the peak only grows,
// and is never more than they can have had together.
func TestThePeakOnlyGrowsUnderLoad(t *testing.T) {
	const goroutines, rounds, size = 4, 150, 3000
	rt := e2e.Open(t, fencepost.Config{Guard: "hunt", GuardConfig: debugguard.Config{QuarantineBytes: 1 << 20}})
	var workers, watcher sync.WaitGroup
	stop := make(chan struct{})
	for range goroutines {
		s := e2e.Lease(t, rt, "s")
		workers.Go(func() {
			for range rounds {
				b, err := rt.Allocate(t.Context(), core.Request{Bytes: size, Stream: s.ID(), Tag: "load"})
				if err == nil {
					_, err = rt.Deallocate(t.Context(), b.ID)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	watcher.Go(func() {
		var last uint64
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			setting, err := debugguard.ParseMode(e2e.GuardSettings[i%len(e2e.GuardSettings)])
			if err == nil {
				err = rt.Guard().Apply(t.Context(), setting)
			}
			peak := rt.Stats().PeakRequested
			if err != nil || peak < last || peak > goroutines*size {
				t.Errorf("%v; the peak was %d and is %d, of %d at most", err, last, peak, goroutines*size)
				return
			}
			last = peak
		}
	})
	workers.Wait()
	close(stop)
	watcher.Wait()
	if peak := rt.Stats().PeakRequested; peak < size {
		t.Errorf("a peak of %d with blocks of %d", peak, size)
	}
}
