package fragmentation

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/guardkernels"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
	"github.com/fencepost-gpu/fencepost/traces"
)

// Tags of blocks that the guard is to sample, and not to.
const sampled, passed core.Tag = "sampled", "passed"

// sampler says which blocks of a program the default guard samples: drawn by their bytes, and in
// the program's time no more than so many in a second. The guard's own draws have no seed.
type sampler struct {
	random *rand.Rand
	// rate is of blocks in a second, 0 for no bound; spare is how many there are now.
	rate, spare float64
	last        time.Duration
}

func (s *sampler) tag(row *alloctrace.Row) core.Tag {
	s.spare = min(s.spare+(row.Time-s.last).Seconds()*s.rate, s.rate/100+1)
	s.last = row.Time
	if s.random.Float64() >= -math.Expm1(-float64(row.Bytes)/float64(debugguard.DefaultSampleBytes)) {
		return passed
	}
	if s.rate > 0 {
		if s.spare < 1 {
			return passed
		}
		s.spare--
	}
	return sampled
}

// guarded puts a guard at its default between the program and the pool, but for the draws.
func (p *program) guarded(seed uint64, rate float64) *debugguard.Resource {
	p.t.Helper()
	ops, err := cuda.NewDeviceOps(p.s.Driver, p.s.Streams, guardkernels.Image())
	must(p.t, err)
	guard, err := debugguard.New(p.s.Pool, debugguard.Config{Mode: debugguard.Sample, Device: ops, QuarantineAge: -1, Advanced: debugguard.Advanced{UpkeepInterval: -1}})
	must(p.t, err)
	p.s.Runtime, err = core.NewRuntime(guard, nil)
	must(p.t, err)
	p.t.Cleanup(func() {
		must(p.t, guard.Drain(context.Background()))
		must(p.t, ops.Close(context.Background()))
	})
	guard.SampleTag(sampled, 1)
	guard.SampleTag(passed, 0)
	p.tag = (&sampler{random: rand.New(rand.NewPCG(seed, 7)), rate: rate}).tag
	return guard
}

// guardedBounds are those with the guard at its default, in the mean of the seeds. The goal is 1.06
// on one stream and 1.15 on several.
var guardedBounds = map[string]float64{"gpt2": 1.04, "resnet": 1.06, "serving": 1.08, "tables": 1.1}

func TestThePoolReservesLittleMoreWithTheDefaultGuard(t *testing.T) {
	table := []string{"trace    a second seed sampled kept live MiB reserved ratio"}
	for _, name := range traces.Names() {
		rows := load(t, name)
		for _, rate := range []float64{debugguard.DefaultSampleRate, 0} {
			sum := 0.0
			for seed := range seeds() {
				t.Run(fmt.Sprintf("%s/rate=%v/seed=%d", name, rate, seed), func(t *testing.T) {
					p := newProgram(t, seed, 0)
					guard := p.guarded(seed, rate)
					p.play(rows)
					pool, err := p.s.Pool.PoolStats()
					must(t, err)
					st := guard.GuardStats()
					p.freeAll()
					ratio, kept := float64(pool.ReservedHigh)/float64(p.peak), st.Quarantine.Blocks+st.Evicted
					sum += ratio
					if kept == 0 {
						t.Errorf("nothing was quarantined, which shows nothing: %+v", st)
					}
					table = append(table, fmt.Sprintf("%-8s %8v %4d %7d %4d %8d %8d %5.3f", name, rate, seed, st.Guarded, kept, p.peak>>20, pool.ReservedHigh>>20, ratio))
				})
			}
			if mean := sum / float64(seeds()); mean > guardedBounds[name] {
				t.Errorf("%s with one block in %v: %.3f bytes are reserved for each that is live, more than %.2f", name, rate,
					mean, guardedBounds[name])
			}
		}
	}
	t.Logf("peaks in MiB, and how many blocks the guard sampled and kept in quarantine:\n%s", strings.Join(table, "\n"))
}
