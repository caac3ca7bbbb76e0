package stackconformance_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/decorators/budget"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/testkit/pathtest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

// TestTheBooksAreTheDevicesWhateverFails is the whole of it: every kind of
// fault, in an order drawn from the seed, under every mode of the guard, and
// the books compared before, after and when all was given up.
func TestTheBooksAreTheDevicesWhateverFails(t *testing.T) {
	rng := rand.New(rand.NewPCG(pathtest.Seed(t), 0))
	struck := map[string]int{}
	guards := []string{"off", "ledger", "sample:4096", "hunt", unmapping}
	if testing.Short() {
		guards = []string{"ledger", unmapping} // each fault comes to pass under one of them
	}
	for _, guard := range guards {
		t.Run(guard, func(t *testing.T) {
			for _, last := range playAll(t, guard, rng, struck) {
				s := newScene(t, guard, rng)
				_, _ = s.play(last, struck)
				s.close(true)
			}
		})
	}
	for name, times := range struck {
		if times == 0 {
			t.Errorf("%s never came to pass: nothing is known of it", name)
		}
	}
}

// tries bounds how often a round is played whose fault does not come to pass.
const tries = 6

// playAll plays every fault that a runtime outlives on one runtime, and
// returns the others, each of which needs its own.
func playAll(t *testing.T, guard string, rng *rand.Rand, struck map[string]int) (last []kind) {
	s := newScene(t, guard, rng)
	all := kinds(guard)
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for i, k := range append(all, all...) { // what the work came to only later is played once more
		f := k(s)
		if f.loses || f.poisons {
			if i < len(all) {
				last = append(last, k)
			}
			continue
		}
		if i >= len(all) && struck[f.name] > 0 {
			continue
		}
		for range tries {
			happened, lost := s.play(k, struck)
			if lost {
				s.close(true)
				s = newScene(t, guard, rng)
			}
			if t.Failed() {
				s.close(true)
				return nil
			}
			if happened {
				break
			}
		}
	}
	s.close(false)
	return last
}

// play is one round: work, a quiet point, work under the fault, and two more. It
// reports whether the fault took the device: where freed memory is unmapped, a
// dropped wait may.
func (s *scene) play(k kind, struck map[string]int) (happened, lost bool) {
	s.Helper()
	s.must(s.work())
	s.settle()
	f := k(s)
	s.agree("before " + f.name)
	s.spoil(f)
	struck[f.name] += 0
	if happened = f.happened(s); happened {
		struck[f.name]++
	}
	if errors.Is(s.device.Synchronize(), core.ErrSticky) {
		s.agreeLost("after " + f.name)
		return happened, true
	}
	s.settle()
	s.agree("after " + f.name)
	s.giveBackStrays()
	if err := s.inTime(s.rt.Drain); err != nil && !f.poisons { // what is poisoned leaves no quarantine
		s.Fatal(err)
	}
	s.settle()
	s.agree("drained after " + f.name)
	return happened || f.impossible, false
}

// settle waits until the device has done everything and the runtime knows. It
// asks below the guard, which keeps its quarantine.
func (s *scene) settle() {
	s.Helper()
	s.must(s.inTime(s.rt.Budget().Drain))
}

func (s *scene) inTime(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return f(ctx)
}

// layers are the resources of the stack, the outermost first.
func (s *scene) layers() (all []core.Resource) {
	for r := s.rt.Core().Resource(); r != nil; r = r.Unwrap() {
		all = append(all, r)
	}
	return all
}

func (s *scene) backend() core.Resource {
	all := s.layers()
	return all[len(all)-1]
}

// same reports two numbers that should be one.
func (s *scene) same(when, what string, ours, theirs any) {
	s.Helper()
	if ours != theirs {
		s.Errorf("%s: %s: %v in our books, %v in the device's", when, what, ours, theirs)
	}
}

// agree compares everything at a quiet point.
func (s *scene) agree(when string) {
	s.Helper()
	s.agreeHeld(when)
	device := s.device.Books()
	s.same(when, "frees that the device has not passed", uint64(0), device.PendingFrees)
	pool, err := s.rt.PoolStats()
	s.must(err)
	for _, l := range s.layers() {
		st := l.Stats()
		s.same(when, fmt.Sprintf("%v: the pool's used bytes", l), st.PoolUsed, pool.Used)
		s.same(when, fmt.Sprintf("%v: reserved bytes", l), st.Reserved+st.Isolated, device.Reserved)
		s.same(when, fmt.Sprintf("%v: mapped bytes", l), st.Isolated, device.MappedBytes)
		s.same(when, fmt.Sprintf("%v: open intents", l), st.OpenIntents, uint64(0))
		if st.Poisoned == 0 {
			s.same(when, fmt.Sprintf("%v: pending", l), st.Pending, core.Amount{})
		}
	}
	s.agreeTags(when)
}

// agreeLost compares what can be known of a device that answers nothing any
// more. What is mapped and was freed is pending in ours, and its unmap never
// comes; a mapping that was being made is no block's.
func (s *scene) agreeLost(when string) {
	s.Helper()
	device := s.device.Books()
	has := core.Amount{Bytes: device.LiveBytes + device.MappedBytes, Blocks: device.LiveBlocks + uint64(device.Mappings)}
	for _, l := range s.layers() {
		st := l.Stats()
		least, most := st.Live.Add(st.Quarantined), st.Outstanding()
		if has.Bytes < least.Bytes || has.Blocks < least.Blocks {
			s.Errorf("%s: %v: %+v held in our books, %+v in the device's", when, l, least, has)
		}
		if device.Mappings == 0 && (has.Bytes > most.Bytes || has.Blocks > most.Blocks) {
			s.Errorf("%s: %v: %+v outstanding in our books, %+v in the device's", when, l, most, has)
		}
		if unmapped := uint64(device.Handles) * sim.Granule; st.Isolated < device.MappedBytes || st.Isolated > device.MappedBytes+unmapped {
			s.Errorf("%s: %v: %d bytes for mappings in our books; %d mapped and at most %d more in the device's", when, l, st.Isolated, device.MappedBytes, unmapped)
		}
	}
	s.agreeLayers(when)
}

// agreeHeld compares what is held, at every layer.
func (s *scene) agreeHeld(when string) {
	s.Helper()
	device := s.device.Books()
	for _, l := range s.layers() {
		st := l.Stats()
		held := st.Live.Add(st.Quarantined)
		if st.Poisoned > 0 {
			held = held.Add(st.Pending) // their frees are never queued
		}
		s.same(when, fmt.Sprintf("%v: bytes held", l), held.Bytes, device.LiveBytes+device.MappedBytes)
		s.same(when, fmt.Sprintf("%v: blocks held", l), held.Blocks, device.LiveBlocks+uint64(device.Mappings))
	}
	s.agreeLayers(when)
}

// agreeLayers compares each layer with itself, and the budget with them all.
func (s *scene) agreeLayers(when string) {
	s.Helper()
	for _, l := range s.layers() {
		st := l.Stats()
		s.same(when, fmt.Sprintf("%v: underflows", l), st.Underflows, uint64(0))
		s.same(when, fmt.Sprintf("%v: allocated and not freed", l), st.Allocations-st.Deallocations, st.Live.Blocks)
	}
	outer := s.rt.Stats()
	s.same(when, "the budget's charge", outer.Charged, outer.Outstanding().Bytes+outer.Claimed)
}

// agreeTags compares the budget's holders with the blocks that the stack lists
// and with the residents that are known to be held.
func (s *scene) agreeTags(when string) {
	s.Helper()
	listed, residents, holders := map[core.Tag]core.Amount{}, map[core.Tag]core.Amount{}, map[core.Tag]core.Amount{}
	add := func(m map[core.Tag]core.Amount, tag core.Tag, bytes, requested, blocks uint64) {
		m[tag] = m[tag].Add(core.Amount{Bytes: bytes, Requested: requested, Blocks: blocks})
	}
	live := map[core.Tag]core.Amount{}
	s.backend().Inspect().Blocks(func(b core.BlockInfo) bool {
		add(listed, b.Block.Tag, b.Block.Bytes, 0, 1)
		return true
	})
	s.rt.Core().Resource().Inspect().Blocks(func(b core.BlockInfo) bool {
		if b.Block.State == core.Live && strings.HasPrefix(string(b.Block.Tag), "resident.") {
			add(live, b.Block.Tag, 0, b.Block.Requested, 1)
		}
		return true
	})
	for _, r := range s.residents {
		add(residents, r.Tag(), 0, r.Bytes(), 1)
	}
	for _, h := range s.rt.Budget().Holders() {
		add(holders, h.Tag, h.Bytes, 0, h.Blocks)
	}
	s.same(when, "holders by tag", fmt.Sprint(holders), fmt.Sprint(listed))
	s.same(when, "residents by tag", fmt.Sprint(live), fmt.Sprint(residents))
	s.same(when, "what callers hold", s.rt.Stats().Live.Requested, s.requested())
}

func (s *scene) requested() (sum uint64) {
	for _, r := range s.residents {
		sum += r.Bytes()
	}
	for _, b := range s.strays() {
		sum += b.Requested
	}
	return sum
}

// strays are the blocks that the demo's work could not give back, because a
// fault met its free.
func (s *scene) strays() (found []core.Block) {
	s.rt.Core().Resource().Inspect().Blocks(func(b core.BlockInfo) bool {
		if b.Block.State == core.Live && !strings.HasPrefix(string(b.Block.Tag), "resident.") {
			found = append(found, b.Block)
		}
		return true
	})
	return found
}

func (s *scene) giveBackStrays() {
	s.Helper()
	for _, b := range s.strays() {
		if _, err := s.rt.Deallocate(context.Background(), b.ID); err != nil && s.rt.Stats().Poisoned == 0 {
			s.Errorf("a block whose free had failed cannot be freed: %v", err)
		}
	}
}

// close gives everything back; nothing may be left but what is poisoned or
// lost.
func (s *scene) close(fatal bool) {
	s.Helper()
	ctx := context.Background()
	for _, r := range slices.Clone(s.residents) {
		if err := r.Free(ctx); err != nil && !fatal {
			s.Errorf("freeing a resident: %v", err)
		}
	}
	for _, l := range append(s.streams, s.more...) {
		if err := l.Release(); err != nil && !fatal {
			s.Errorf("releasing a stream: %v", err)
		}
	}
	if err := s.rt.ReleaseClaim(ctx, s.claim.ID); err != nil && !fatal {
		s.Errorf("releasing the claim: %v", err)
	}
	left, err := s.rt.Close(ctx)
	if !fatal && (err != nil || len(left.Leaks) > 0 || s.device.Books().LiveBlocks > 0 || s.device.Books().Mappings > 0) {
		s.Errorf("closing: %v; left over %+v; the device holds %+v", err, left, s.device.Books())
	}
	s.must(s.device.Close())
}

// growing is a driver that tells when memory is made.
type growing struct {
	driver.Driver
	tell func()
}

func (g *growing) Unwrap() driver.Driver { return g.Driver }

func (g *growing) MemCreate(bytes uint64) (driver.MemHandle, error) {
	g.tell()
	return g.Driver.MemCreate(bytes)
}

// A block is live once the pool has it, also if it was charged before the pool began to grow for it.
func TestABlockIsLiveOnceThePoolHasIt(t *testing.T) {
	drv := &growing{tell: func() {}}
	var books *budget.Resource
	s := teststack.Open(t, teststack.Config{Sim: sim.Config{Bytes: 256 << 20}, Pool: &cuda.PoolConfig{}, Async: cuda.AsyncConfig{ReapInterval: -1},
		Wrap: func(d driver.Driver) driver.Driver { drv.Driver = d; return drv },
		Layers: []core.Layer{func(up core.Resource) (_ core.Resource, err error) {
			books, err = budget.New(up, budget.Config{Limit: limit})
			return books, err
		}}})
	on := s.Lease(t, "grows").ID()
	churn(t, s.Runtime, on, 1)
	grown := false
	drv.tell = func() {
		grown = true
		if held := books.Holders(); len(held) != 0 {
			t.Errorf("while the pool grows %v", held)
		}
	}
	b := must.Get(s.Runtime.Allocate(t.Context(), core.Request{Bytes: limit, Stream: on, Tag: "large"}))(t)
	if held := books.Holders(); !grown || len(held) != 1 || held[0] != (core.Holder{Tag: "large", State: core.Live, Bytes: limit, Blocks: 1}) {
		t.Errorf("behind it %v", held)
	}
	must.Get(s.Runtime.Deallocate(t.Context(), b.ID))(t)
}
