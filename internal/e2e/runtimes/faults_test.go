package runtimes_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
)

// TestEveryDriverCallUnderTheWholeStackMayFail runs a small service over the
// whole stack, with the guard on every block, and makes driver call 1, 2, 3, …
// fail until none is left. What failed once must work when it is asked again,
// and nothing may be lost, unfenced or wrongly reported. With -short it is every
// seventh call.
func TestEveryDriverCallUnderTheWholeStackMayFail(t *testing.T) {
	step := uint64(1)
	if testing.Short() {
		step = 7
	}
	for _, guard := range []string{"hunt", "hunt:unmap"} {
		t.Run(guard, func(t *testing.T) {
			k := uint64(1)
			for ; failOneCall(t, guard, k); k += step {
				if t.Failed() {
					t.Fatalf("with driver call %d failing", k)
				}
			}
			t.Logf("of %d calls each in %d was made to fail in turn", k-1, step)
			if k < 100 {
				t.Errorf("only %d calls were made: the script has lost its work", k-1)
			}
		})
	}
}

// failOneCall runs the script with its k-th driver call failing and reports
// whether there was one.
func failOneCall(t *testing.T, guard string, k uint64) bool {
	t.Helper()
	device, err := sim.Open(sim.Config{Bytes: 64 << 20, Schedule: sim.Seeded(1)}) // the same calls for every k
	e2e.Succeed(t, "opening the device", err)
	defer func() { e2e.Succeed(t, "closing the device", device.Close()) }()
	faults := drivertest.NewFaults(device)
	faults.FailCall(k, driver.Unknown)
	cfg := fencepost.Config{Driver: faults, Guard: fencepost.GuardMode(guard), Async: cuda.AsyncConfig{ReapInterval: -1}}
	rt, err := fencepost.Open(t.Context(), cfg)
	if err != nil {
		faults.Clear()
		wantInjected(t, err)
		rt, err = fencepost.Open(t.Context(), cfg)
		e2e.Succeed(t, "opening again", err)
	}
	s := &script{T: t, rt: rt}
	s.retry(s.work)
	s.retry(s.giveBack)
	faults.Clear()
	s.settled()
	if unmaps := guard == "hunt:unmap"; unmaps != (rt.Guard().GuardStats().Isolated > 0) {
		t.Errorf("with guard %s: %+v", guard, rt.Guard().GuardStats())
	}
	left, err := rt.Close(context.Background())
	e2e.Succeed(t, "closing", err)
	if b := device.Books(); b.Mappings+b.Handles+b.Reservations > 0 {
		t.Errorf("mapped still: %+v", b)
	}
	if len(left.Leaks) > 0 || device.Books().LiveBlocks > 0 || device.FindingCount() > 0 {
		t.Errorf("left over: %+v; the device: %+v, %v", left, device.Books(), device.Findings())
	}
	return faults.Total() >= k
}

// script is the service: it remembers what it holds, so that each step can be
// repeated.
type script struct {
	*testing.T
	rt     *fencepost.Runtime
	leases []*cuda.Lease
	cols   []*cuda.Slice[uint32]
	claim  core.Claim
}

// retry runs a step until it succeeds; only the injected fault may stop it,
// and that happens once, or twice where a launch was finished all the same.
func (s *script) retry(step func() error) {
	s.Helper()
	for range 3 {
		err := step()
		if err == nil {
			return
		}
		wantInjected(s.T, err)
	}
	s.Errorf("the step fails again and again")
}

func wantInjected(t *testing.T, err error) {
	t.Helper()
	var d *core.DriverError
	if !errors.As(err, &d) || d.Code != driver.Unknown {
		t.Errorf("got %v, want the injected fault", err)
	}
}

func (s *script) work() error {
	for len(s.leases) < 2 {
		l, err := s.rt.Streams().Acquire(s.Context(), "faults")
		if err != nil {
			return err
		}
		s.leases = append(s.leases, l)
	}
	if s.claim.ID == 0 {
		claim, err := s.rt.Reserve(s.Context(), 8192, "faults")
		if err != nil {
			return err
		}
		s.claim = claim
	}
	for len(s.cols) < 4 {
		on := s.leases[len(s.cols)%2]
		col, err := cuda.Alloc[uint32](s.Context(), s.rt.Memory(), 256, cuda.AllocOptions{Stream: on.ID(), Tag: core.Tag(fmt.Sprint("faults.", len(s.cols))), Claim: s.claim.ID})
		if err != nil {
			return err
		}
		s.cols = append(s.cols, col)
	}
	return s.launches()
}

// launches writes on one stream what the other reads, in both directions.
func (s *script) launches() error {
	host := make([]uint32, 256)
	x, y := s.leases[0].ID(), s.leases[1].ID()
	for i := range 2 {
		from, to := s.cols[i], s.cols[3-i]
		if err := cuda.Memset(s.Context(), from, x, byte(i)); err != nil {
			return err
		}
		if err := cuda.CopyOnDevice(s.Context(), to, from, y); err != nil {
			return err
		}
		if err := cuda.CopyToHost(s.Context(), host, to, x); err != nil {
			return err
		}
	}
	return errors.Join(s.rt.Streams().Synchronize(s.Context(), x), s.rt.Streams().Synchronize(s.Context(), y))
}

func (s *script) giveBack() error {
	for len(s.cols) > 0 {
		if err := s.cols[0].Free(s.Context()); err != nil {
			return err
		}
		s.cols = s.cols[1:]
	}
	if s.claim.ID != 0 {
		if err := s.rt.ReleaseClaim(s.Context(), s.claim.ID); err != nil {
			return err
		}
		s.claim = core.Claim{}
	}
	return s.rt.Drain(s.Context())
}

// settled checks the books when all was given back, and ends the leases.
func (s *script) settled() {
	s.Helper()
	e2e.Succeed(s.T, "draining", s.rt.Drain(s.Context()))
	st := s.rt.Stats()
	if st.Outstanding() != (core.Amount{}) || st.Charged != 0 || st.Claims != 0 || st.OpenIntents != 0 || st.Underflows != 0 || st.Poisoned != 0 {
		s.Errorf("the books after all was given back: %+v", st)
	}
	for _, f := range s.rt.Findings().Recent() {
		s.Errorf("a finding: %v", f)
	}
	for _, l := range s.leases {
		e2e.Succeed(s.T, "releasing a stream", l.Release())
	}
}
