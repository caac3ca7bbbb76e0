package guardcost

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/internal/workload"
	"github.com/fencepost-gpu/fencepost/traces"
)

// soakVariable is how long the tests of switching take, such as 1m.
const soakVariable = "FENCEPOST_SOAK"

func soakFor(t *testing.T, otherwise time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv(soakVariable)
	if text == "" {
		return otherwise
	}
	d, err := time.ParseDuration(text)
	must(t, err)
	return d
}

const switchEvery = 10 * time.Millisecond

// soaked are the settings that are switched through, and the tags hunted.
var (
	soaked     = append(Tiers(), "sample:65536", "hunt:delay", "hunt:bisect+delay")
	soakedTags = []core.Tag{"workload.sort", "workload.join", "replay", "kept"}
)

// soak is a runtime under load whose guard is switched.
type soak struct {
	*testing.T
	rt   *fencepost.Runtime
	seed uint64
	// largest cuts the blocks of the traces, in bytes; 0 leaves them.
	largest uint64
	kept    []*cuda.Slice[byte]

	replays, keeps, switches int
	result                   workload.Result
}

// soakAndJudge puts the runtime under load for d, and for longer where the
// machine is so busy that nothing was proved by then: how much is done is what
// counts. A load that gets nowhere until the test's deadline is near says so by
// name, as what was not tested: it is nothing's fault but the machine's.
func (s *soak) soakAndJudge(d time.Duration) {
	s.Helper()
	s.seed = uint64(time.Now().UnixNano())
	s.Logf("seed %d", s.seed)
	want, end := max(1, int(d/switchEvery)/10), s.lastMoment(d)
	for part := d; ; part *= 2 {
		s.run(part)
		if s.Failed() || s.lacks(want) == "" || time.Now().Add(2*part).After(end) {
			break
		}
		s.Logf("seed %d: the machine is busy; the soak goes on, because it lacks %s", s.seed, s.lacks(want))
	}
	s.judge(d)
	if lack := s.lacks(want); lack != "" && !s.Failed() {
		s.Skipf("seed %d: the soak proved nothing on so busy a machine: it lacks %s", s.seed, lack)
	}
}

// lastMoment is until when a soak of d may go on: ten minutes, and half of the
// time that is left to the tests, at most.
func (s *soak) lastMoment(d time.Duration) time.Time {
	end := time.Now().Add(d + 10*time.Minute)
	if deadline, ok := s.Deadline(); ok {
		if half := time.Now().Add(time.Until(deadline) / 2); half.Before(end) {
			return half
		}
	}
	return end
}

// lacks names what a soak has to do and has not done yet.
func (s *soak) lacks(switches int) string {
	g := s.rt.Guard().GuardStats()
	for _, x := range []struct {
		what      string
		got, want uint64
	}{
		{"switches", uint64(s.switches), uint64(switches)},
		{"results", s.result.Checked, 1},
		{"blocks kept", uint64(s.keeps), 1},
		{"blocks guarded", g.Guarded, 1},
		{"blocks verified", g.Verified, 1},
		{"blocks let go", g.Evicted, 1},
	} {
		if x.got < x.want {
			return fmt.Sprintf("%s: %d of %d", x.what, x.got, x.want)
		}
	}
	return ""
}

// run puts the runtime under load for d while tiers and hunted tags change.
func (s *soak) run(d time.Duration) {
	s.Helper()
	w, err := workload.New(
		workload.Env{Driver: s.rt.Driver(), Runtime: s.rt.Core(), Streams: s.rt.Streams(), Memory: s.rt.Memory()},
		workload.Config{Goroutines: 4, Iterations: 8, Rounds: math.MaxInt, Rows: 512, Seed: s.seed})
	must(s, err)
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var group sync.WaitGroup
	load := func(f func(context.Context) error) {
		group.Go(func() {
			if err := f(ctx); err != nil && (ctx.Err() == nil || !errors.Is(err, context.DeadlineExceeded)) { // the end came while it waited
				s.Errorf("seed %d: %v", s.seed, err)
				cancel()
			}
		})
	}
	load(func(ctx context.Context) error {
		r, err := w.Run(ctx)
		s.result.Checked += r.Checked
		s.result.Wrong += r.Wrong
		s.result.Refused += r.Refused
		return err
	})
	load(s.replay)
	load(s.keep)
	load(s.switchTiers)
	group.Wait()
}

func (s *soak) random(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(s.seed, stream)) }

func (s *soak) switchTiers(ctx context.Context) error {
	rng, tick := s.random(1), time.NewTicker(switchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		first, last := rng.IntN(len(soakedTags)+1), rng.IntN(len(soakedTags)+1)
		s.rt.Guard().HuntTags(soakedTags[min(first, last):max(first, last)]...)
		if err := Apply(ctx, s.rt.Guard(), soaked[rng.IntN(len(soaked))]); err != nil {
			return fmt.Errorf("switching: %w", err)
		}
		s.switches++
	}
}

// replay plays the traces one after another; a replay that the end of the
// soak cuts short gives its blocks back all the same.
func (s *soak) replay(ctx context.Context) error {
	for i := 0; ctx.Err() == nil; i++ {
		r, err := newReplays(s.rt, traces.Names()[i%len(traces.Names())])
		if err == nil {
			s.cut(r)
			err = r.Run(ctx, 1)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			return nil
		}
		if err := errors.Join(err, r.Check()); err != nil {
			return fmt.Errorf("replaying: %w", err)
		}
		s.replays++
	}
	return nil
}

func (s *soak) cut(r *replays) {
	if s.largest == 0 {
		return
	}
	for _, t := range r.loaded {
		for i := range t.Rows {
			t.Rows[i].Bytes = min(t.Rows[i].Bytes, s.largest)
		}
	}
}

// keepers is how many blocks are kept over many switches.
const keepers = 96

// keep holds blocks that were allocated under one tier and are freed under
// another, and looks whether they still hold what was written to them.
func (s *soak) keep(ctx context.Context) (err error) {
	lease, err := s.rt.Streams().Acquire(ctx, "kept")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lease.Release()) }()
	rng := s.random(2)
	for ctx.Err() == nil {
		if len(s.kept) == keepers {
			i := rng.IntN(keepers)
			if err := s.giveBack(s.kept[i], lease.ID()); err != nil {
				return err
			}
			s.kept[i] = s.kept[keepers-1]
			s.kept = s.kept[:keepers-1]
		}
		b, err := cuda.Alloc[byte](context.Background(), s.rt.Memory(), 1+rng.IntN(64<<10), cuda.AllocOptions{Stream: lease.ID(), Tag: "kept"})
		if err != nil {
			return err
		}
		s.kept = append(s.kept, b)
		if err := cuda.Memset(context.Background(), b, lease.ID(), content(b)); err != nil {
			return err
		}
		s.keeps++
		time.Sleep(200 * time.Microsecond)
	}
	return nil
}

// content is what a kept block is filled with.
func content(b *cuda.Slice[byte]) byte { return byte(b.BlockID().Generation) }

func (s *soak) giveBack(b *cuda.Slice[byte], stream core.StreamID) error {
	want := content(b)
	bytes, err := cuda.Download(context.Background(), b, stream)
	for i, got := range bytes {
		if got != want {
			return fmt.Errorf("byte %d of %d of a kept block (%v) is %#x, want %#x", i, len(bytes), b.BlockID(), got, want)
		}
	}
	return errors.Join(err, b.Free(context.Background()))
}

// judge looks at what is left when the load has ended: the kept blocks and
// nothing else, in every book, and after their free nothing at all.
func (s *soak) judge(d time.Duration) {
	s.Helper()
	must(s, s.rt.Drain(ctx))
	s.books("with the kept blocks", len(s.kept))
	s.inspected()
	lease, err := s.rt.Streams().Acquire(ctx, "kept")
	must(s, err)
	for _, b := range s.kept {
		must(s, s.giveBack(b, lease.ID()))
	}
	must(s, errors.Join(lease.Release(), s.rt.Drain(ctx)))
	s.kept = nil
	s.books("at the end", 0)
	s.inspected()
	g := s.rt.Guard().GuardStats()
	if g.Known != 0 || g.Quarantine != (core.Amount{}) || g.BlockedFrees != (core.Amount{}) || g.Checks != 0 {
		s.Errorf("seed %d: left in the guard: %+v", s.seed, g)
	}
	if n := s.rt.Findings().Total(); n != 0 || g.Findings != 0 {
		s.Errorf("seed %d: %d findings: %v", s.seed, n, s.rt.Findings().Recent())
	}
	s.Logf("%v: %d switches, %d results right, %d blocks kept and looked at, %d traces replayed; %d guarded, %d verified, %d unchecked, %d let go",
		d, s.switches, s.result.Checked, s.keeps, s.replays, g.Guarded, g.Verified, g.Unchecked, g.Evicted)
	if s.result.Wrong != 0 || s.result.Refused != 0 {
		s.Errorf("seed %d: %+v", s.seed, s.result)
	}
}

// books compares the runtime's books with the driver's pool.
func (s *soak) books(when string, blocks int) {
	s.Helper()
	pool, err := s.rt.PoolStats()
	must(s, err)
	st := s.rt.Stats()
	if st.Live.Blocks != uint64(blocks) || st.Live.Bytes != pool.Used || st.Outstanding() != st.Live || st.OpenIntents != 0 || st.Underflows != 0 || st.Poisoned != 0 {
		s.Errorf("seed %d: %s, which are %d: the driver has allocated %d bytes, and the books say %+v", s.seed, when, blocks, pool.Used, st)
	}
	if s.rt.Budget().Stats().Charged != pool.Used {
		s.Errorf("seed %d: %s the budget is charged with %d bytes, the driver has allocated %d", s.seed, when, s.rt.Budget().Stats().Charged, pool.Used)
	}
}

// inspected compares what the guard lists with the kept blocks.
func (s *soak) inspected() {
	s.Helper()
	want := map[core.Generation]bool{}
	for _, b := range s.kept {
		want[b.BlockID().Generation] = true
	}
	s.rt.Guard().Inspect().Blocks(func(info core.BlockInfo) bool {
		g := info.Block.ID.Generation
		if !want[g] || info.Block.State != core.Live || info.Block.Tag != "kept" {
			s.Errorf("seed %d: the guard lists %+v", s.seed, info.Block)
		}
		delete(want, g)
		return true
	})
	if len(want) > 0 {
		s.Errorf("seed %d: %d kept blocks are listed nowhere", s.seed, len(want))
	}
}

// On the simulated device poison is written by a processor, so the largest
// blocks are cut.
func TestSwitchingTiersUnderLoadLosesNothing(t *testing.T) {
	rt, device := simulated(t, fencepost.Config{})
	d := soakFor(t, 3*time.Second)
	s := &soak{T: t, rt: rt, largest: 256 << 10}
	s.soakAndJudge(d)
	if b := device.Books(); b.LiveBlocks != 0 || b.LiveBytes != 0 || b.PendingFrees != 0 {
		t.Errorf("seed %d: the device's own books: %+v", s.seed, b)
	}
}

// A machine on which a soak gets to nothing in its time is one with less time.
func TestASoakGoesOnUntilItHasProvedSomething(t *testing.T) {
	rt, _ := simulated(t, fencepost.Config{})
	s := &soak{T: t, rt: rt, largest: 4 << 10}
	s.soakAndJudge(time.Millisecond)
	if lack := s.lacks(1); lack != "" {
		t.Errorf("seed %d: it ended without %s", s.seed, lack)
	}
}
