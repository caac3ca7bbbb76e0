package admit_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/fencepost-gpu/fencepost/admit"
)

// program is a job with memory: which sizes it is called with, and how many MiB it then needs.
type program struct {
	name  string
	sizes func(*rand.Rand) [2]int
	needs func(x, y float64) float64
	two   bool
}

// spread are sizes of which each order of magnitude comes as often as another.
func spread(r *rand.Rand, least, most float64) int {
	return int(least * math.Exp(r.Float64()*math.Log(most/least)))
}

func wide(r *rand.Rand) [2]int  { return [2]int{spread(r, 100, 100_000), 0} }
func pairs(r *rand.Rand) [2]int { return [2]int{spread(r, 100, 100_000), spread(r, 10, 5000)} }
func four(r *rand.Rand) [2]int  { return [2]int{[]int{512, 4096, 5000, 32_768}[r.IntN(4)], 0} }
func same(*rand.Rand) [2]int    { return [2]int{} }

var programs = []program{
	{name: "the same each time", sizes: same, needs: func(_, _ float64) float64 { return 700 }},
	{name: "four sizes", sizes: four, needs: func(x, _ float64) float64 { return 100 + x/50 }},
	{name: "linear", sizes: wide, needs: func(x, _ float64) float64 { return x / 100 }},
	{name: "affine", sizes: wide, needs: func(x, _ float64) float64 { return 64 + x/100 }},
	{name: "quadratic", sizes: wide, needs: func(x, _ float64) float64 { return 8 + x/1000 + x*x/1e6 }},
	{name: "n log n", sizes: wide, needs: func(x, _ float64) float64 { return 8 + x*math.Log(x)/5000 }},
	{name: "rounded up to powers of two", sizes: wide, needs: func(x, _ float64) float64 { return math.Exp2(math.Ceil(math.Log2(x))) / 100 }},
	{name: "a few levels", sizes: wide, needs: func(x, _ float64) float64 { return 100 * (1 + math.Floor(math.Log(x))) }},
	{name: "rows and columns", sizes: pairs, needs: func(x, y float64) float64 { return 8 + x/3000 + x*y/130_000 + y/500 }, two: true},
}

// change is what happens to a job's memory as it runs on, by the number of the run.
type change struct {
	name string
	mib  func(mib float64, run int) float64
	hard bool
}

const runs, changedAt = 1000, 500

func from(run int, then, otherwise float64) float64 {
	if run >= changedAt {
		return then
	}
	return otherwise
}

var changes = []change{
	{"nothing changes", func(mib float64, _ int) float64 { return mib }, false},
	{"half from a deploy on", func(mib float64, run int) float64 { return mib * from(run, 0.5, 1) }, true},
	{"a fifth less from a deploy on", func(mib float64, run int) float64 { return mib * from(run, 0.8, 1) }, true},
	{"a third more from a deploy on", func(mib float64, run int) float64 { return mib * from(run, 1.33, 1) }, true},
	{"double from a deploy on", func(mib float64, run int) float64 { return mib * from(run, 2, 1) }, true},
	{"a workspace more from a deploy on", func(mib float64, run int) float64 { return mib + from(run, 100, 0) }, true},
	{"a workspace less from a deploy on", func(mib float64, run int) float64 { return mib + from(run, 0, 30) }, true},
	{"more and more", func(mib float64, run int) float64 { return mib * (1 + float64(run)/6000) }, true},
	{"less and less", func(mib float64, run int) float64 { return mib * (1 - float64(run)/6000) }, true},
}

// outcome is how good the reservations of many runs were.
type outcome struct {
	jobs, under, worst int     // worst is of one seed
	over, peaks, ideal float64 // ideal is what one who knows the job would have over
}

// seeds is how many times a program is run.
func seeds() uint64 {
	if testing.Short() {
		return 2
	}
	return 8
}

// learn runs a program with noise, which is the standard deviation of the logarithm, and counts from
// the 21st run on.
func learn(p program, c change, noise float64) (o outcome) {
	for seed := range seeds() {
		r := rand.New(rand.NewPCG(seed, 37))
		m, under := new(admit.Model), 0
		for run := range runs {
			size := p.sizes(r)
			mean := c.mib(p.needs(float64(size[0]), float64(size[1])), run) * (1 << 20)
			peak := math.Round(mean * math.Exp(noise*r.NormFloat64()))
			shape := admit.ShapeOf("rows", size[0])
			if p.two {
				shape = shape.And("columns", size[1])
			}
			if predicted := m.Predict("job", shape); run >= 20 {
				o.jobs++
				o.peaks += peak
				if float64(predicted.Bytes) < peak {
					under++
				}
				o.over += max(0, float64(predicted.Bytes)-peak)
				o.ideal += max(0, mean*math.Exp(2.33*noise)-peak)
			}
			m.Observe("job", shape, uint64(peak))
		}
		o.under += under
		o.worst = max(o.worst, under)
	}
	return o
}

// TestLearnedPeaksKeepTheirTarget: at most one job in a hundred needs more than reserved, with each
// seed, and at most 15 % more is reserved than needed, or 25 % of powers of two that change and are
// noisy. It counts the runs after a change, from the first one on.
func TestLearnedPeaksKeepTheirTarget(t *testing.T) {
	for _, p := range programs {
		for _, c := range changes {
			noises := []float64{0, 0.02, 0.01}
			if testing.Short() {
				noises = noises[:2]
			}
			for _, noise := range noises {
				target := 0.15
				if p.name == "rounded up to powers of two" && c.hard && noise > 0 {
					target = 0.25
				}
				o := learn(p, c, noise)
				line := fmt.Sprintf("%s, %s, noise of %g %%: under %.2f %%, worst %d of %d; over %.1f %%", p.name, c.name, 100*noise,
					100*float64(o.under)/float64(o.jobs), o.worst, o.jobs/int(seeds()), 100*o.over/o.peaks)
				t.Log(line)
				if o.worst*100 > o.jobs/int(seeds()) || o.over > target*o.peaks {
					t.Error("missed:", line)
				}
			}
		}
	}
}

// TestHeavyNoiseIsCoveredAtAPrice: where the peaks of one size differ by tens of per cent nobody can
// keep both targets. Then few jobs are under, and what is over is at most half as much again as one would
// have who knows the distribution, and a quarter of the peaks.
func TestHeavyNoiseIsCoveredAtAPrice(t *testing.T) {
	for _, p := range programs {
		for _, noise := range []float64{0.1, 0.2, 0.3} {
			o := learn(p, changes[0], noise)
			line := fmt.Sprintf("%s, noise of %g %%: under %.2f %%, worst %d of %d; over %.1f %%, ideal %.1f %%", p.name, 100*noise,
				100*float64(o.under)/float64(o.jobs), o.worst, o.jobs/int(seeds()), 100*o.over/o.peaks, 100*o.ideal/o.peaks)
			t.Log(line)
			if o.worst*100 > o.jobs/int(seeds()) || o.over > 1.5*o.ideal+0.25*o.peaks {
				t.Error("missed:", line)
			}
		}
	}
}

// A giant is predicted from much smaller ones: enough of all that grows at most with the square of its
// size, and not known.
func TestAGiantIsPredictedWithCaution(t *testing.T) {
	for _, p := range programs {
		if p.sizes(rand.New(rand.NewPCG(0, 0)))[0] == 0 {
			continue
		}
		m, r := new(admit.Model), rand.New(rand.NewPCG(5, 37))
		shape := func(size [2]int) admit.Shape {
			if p.two {
				return admit.ShapeOf("rows", size[0]).And("columns", size[1])
			}
			return admit.ShapeOf("rows", size[0])
		}
		needs := func(size [2]int) uint64 { return uint64(p.needs(float64(size[0]), float64(size[1])) * (1 << 20)) }
		for range 200 {
			size := p.sizes(r)
			m.Observe("job", shape(size), needs(size))
		}
		giant := [2]int{1_000_000, 0}
		if p.two {
			giant[1] = 5000
		}
		got := m.Predict("job", shape(giant))
		if need := needs(giant); got.Known || got.Bytes < need || got.Low > need || got.Low == 0 {
			t.Errorf("%s: %+v for one that needs %d", p.name, got, need)
		}
	}
}

func TestAPredictionSaysWhatItIsWorth(t *testing.T) {
	var m admit.Model
	if p := m.Predict("job", admit.ShapeOf("rows", 5)); p != (admit.Prediction{}) {
		t.Errorf("a job that was never seen: %+v", p)
	}
	for n := range 25 {
		m.Observe("job", admit.ShapeOf("rows", 1000), 1<<20)
		p := m.Predict("job", admit.ShapeOf("rows", 1000))
		if p.Runs != n+1 || p.Known != (n >= 19) || p.Low > 1<<20 || p.Bytes < 1<<20 || p.Bytes > 1<<20*8/5 {
			t.Errorf("after %d runs: %+v", n+1, p)
		}
		if larger := m.Predict("job", admit.ShapeOf("rows", 2000)); larger.Known || larger.Bytes < 2<<20 || larger.Low != p.Low {
			t.Errorf("a larger one after %d runs: %+v", n+1, larger)
		}
	}
	if p := m.Predict("job", admit.ShapeOf("columns", 1000)); p.Runs != 0 {
		t.Errorf("another number is taken for rows: %+v", p)
	}
}

// One size of several that needs less is followed when the runs before are forgotten, and jobs whose
// memory goes up and down again and again are not believed to have changed for good.
func TestAChangeOfOneSizeAndOneThatDoesNotLast(t *testing.T) {
	for _, noise := range []float64{0, 0.01} {
		for _, by := range []float64{0.5, 0.8, 1.3, 2} {
			large := false
			o := learn(program{sizes: four, needs: func(x, _ float64) float64 {
				large = x > 10_000
				return 100 + x/50
			}}, change{mib: func(mib float64, run int) float64 {
				if large {
					return mib * from(run, by, 1)
				}
				return mib
			}}, noise)
			if o.worst*100 > o.jobs/int(seeds()) || o.over > 0.2*o.peaks {
				t.Errorf("one size by %g, noise of %g: worst %d, over %.1f %%", by, noise, o.worst, 100*o.over/o.peaks)
			}
		}
		for _, length := range []int{1, 5, 20, 50, 100} {
			for _, p := range []program{programs[0], programs[3]} {
				o := learn(p, change{mib: func(mib float64, run int) float64 { return mib * float64(1+run/length%2) }}, noise)
				if o.worst*100 > o.jobs/int(seeds()) || o.over > 0.6*o.peaks {
					t.Errorf("%s, phases of %d, noise of %g: worst %d, over %.1f %%", p.name, length, noise, o.worst, 100*o.over/o.peaks)
				}
			}
		}
	}
}

// TestAnotherProgramUnderTheSameName: a deploy that changes what a job does, and not only by how much.
func TestAnotherProgramUnderTheSameName(t *testing.T) {
	for _, then := range []program{programs[3], programs[4], programs[5], programs[7]} {
		for _, now := range []program{programs[3], programs[4], programs[5], programs[7]} {
			run := 0
			o := learn(program{sizes: func(r *rand.Rand) [2]int {
				run++
				return wide(r)
			}, needs: func(x, y float64) float64 {
				if (run-1)%runs >= changedAt {
					return now.needs(x, y)
				}
				return then.needs(x, y)
			}}, changes[0], 0.01)
			if o.worst*100 > o.jobs/int(seeds()) || o.over > 0.2*o.peaks {
				t.Errorf("%s, then %s: worst %d, over %.1f %%", then.name, now.name, o.worst, 100*o.over/o.peaks)
			}
		}
	}
}

// TestSizesThatGrow: each run is larger than all before, which is no change.
func TestSizesThatGrow(t *testing.T) {
	var m admit.Model
	for run := range 100 {
		m.Observe("job", admit.ShapeOf("rows", 10+run), uint64(1000*(10+run)))
		if p := m.Predict("job", admit.ShapeOf("rows", 10)); p.Runs != run+1 {
			t.Fatalf("after %d runs: %+v", run+1, p)
		}
	}
	for _, p := range programs[2:8] {
		run := 0
		o := learn(program{sizes: func(*rand.Rand) [2]int {
			run++
			return [2]int{1000 + 50*((run-1)%runs), 0}
		}, needs: p.needs}, changes[0], 0.01)
		if o.worst*100 > o.jobs/int(seeds()) || o.over > 0.1*o.peaks {
			t.Errorf("%s: worst %d, over %.1f %%", p.name, o.worst, 100*o.over/o.peaks)
		}
	}
}

// TestTheFirstRunsHaveAMargin: what is not known yet is under its reservation one time in twenty at most.
func TestTheFirstRunsHaveAMargin(t *testing.T) {
	for _, p := range programs {
		for _, noise := range []float64{0, 0.02, 0.1} {
			under, jobs := 0, 0
			for seed := range uint64(100) {
				r, m := rand.New(rand.NewPCG(seed, 41)), new(admit.Model)
				for run := range 20 {
					size := p.sizes(r)
					peak := uint64(p.needs(float64(size[0]), float64(size[1])) * math.Exp(noise*r.NormFloat64()) * (1 << 20))
					shape := admit.ShapeOf("rows", size[0]).And("columns", size[1])
					if run > 0 {
						jobs++
						if m.Predict("job", shape).Bytes < peak {
							under++
						}
					}
					m.Observe("job", shape, peak)
				}
			}
			if under*20 > jobs {
				t.Errorf("%s, noise of %g: %.1f %% of %d under", p.name, noise, 100*float64(under)/float64(jobs), jobs)
			}
		}
	}
}

// After a change the reservation follows within a few runs.
func TestAChangeIsFollowedAtOnce(t *testing.T) {
	var m admit.Model
	peak := uint64(1000 << 20)
	for range 100 {
		m.Observe("job", admit.Shape{}, peak)
	}
	for _, next := range []uint64{2000 << 20, 4000 << 20, 500 << 20, 100 << 20} {
		for run := range 20 {
			p := m.Predict("job", admit.Shape{})
			if run > 0 && next > peak && p.Bytes < next && p.Bytes < 4*peak || run > 5 && (p.Bytes < next || p.Bytes > next*12/10) {
				t.Errorf("run %d after a change from %d to %d: %+v", run, peak, next, p)
			}
			m.Observe("job", admit.Shape{}, next)
		}
		peak = next
	}
}

func TestPredictionsAreMonotoneInEachSize(t *testing.T) {
	for _, p := range programs {
		m, r := new(admit.Model), rand.New(rand.NewPCG(11, 37))
		most := [2]int{}
		for range 300 {
			size := p.sizes(r)
			most = [2]int{max(most[0], size[0]), max(most[1], size[1])}
			m.Observe("job", admit.ShapeOf("x", size[0]).And("y", size[1]), uint64(p.needs(float64(size[0]), float64(size[1]))*(1<<20)*math.Exp(0.05*r.NormFloat64())))
		}
		for _, along := range [][2]int{{1, 0}, {0, 1}, {1, 1}} {
			var last uint64
			for i := range 200 {
				got := m.Predict("job", admit.ShapeOf("x", most[0]*(i*along[0]+50*(1-along[0]))/200).And("y", most[1]*(i*along[1]+50*(1-along[1]))/200))
				if got.Bytes < last {
					t.Errorf("%s: %d bytes after %d along %v", p.name, got.Bytes, last, along)
				}
				last = got.Bytes
			}
		}
	}
}

// A job that needs no memory is known to need none, and a few runs that need some are followed.
func TestNothingIsKnowledge(t *testing.T) {
	for _, s := range []admit.Shape{{}, admit.ShapeOf("rows", 1000)} {
		var m admit.Model
		for range 25 {
			m.Observe("lookup", s, 0)
		}
		if p := m.Predict("lookup", s); p.Bytes != 0 || p.Low != 0 || p.High != 0 || !p.Known || p.Runs != 25 {
			t.Errorf("%+v", p)
		}
		for range 10 {
			m.Observe("lookup", s, 1<<20)
		}
		if p := m.Predict("lookup", s); p.Bytes < 1<<20 || p.Bytes > 2<<20 {
			t.Errorf("after a change: %+v", p)
		}
	}
}

// One run says little: a second one that needs far more is believed at once.
func TestTheFirstRunIsNotHeldOnTo(t *testing.T) {
	for _, first := range []uint64{0, 1000} {
		var m admit.Model
		m.Observe("job", admit.Shape{}, first)
		m.Observe("job", admit.Shape{}, 1<<20)
		if p := m.Predict("job", admit.Shape{}); p.Bytes < 1<<20 {
			t.Errorf("after %d bytes and a MiB %d are predicted", first, p.Bytes)
		}
	}
}

// Whatever it is told, a model says something that can be.
func FuzzPredictions(f *testing.F) {
	f.Add([]byte{1, 2, 3, 255, 0, 9, 200, 128, 64, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		var m admit.Model
		none := false // has needed nothing
		sizes := func(b []byte) admit.Shape {
			return admit.ShapeOf("x", int(b[0])<<(b[1]%56)).And("y", int(b[1])<<(b[0]%56))
		}
		for ; len(data) >= 4; data = data[4:] {
			none = none || data[2] == 0
			m.Observe("job", sizes(data), uint64(data[2])<<(data[3]%57))
			for _, s := range []admit.Shape{sizes(data), sizes(data[1:]), sizes(data[2:])} {
				if p := m.Predict("job", s); p.Low > p.Bytes || p.Bytes == 0 && !none || p.Bytes > 1<<62 || p.Runs == 0 ||
					p.Runs > 256 {
					t.Fatalf("%v: %+v", s, p)
				}
			}
		}
	})
}

func TestAModelIsBounded(t *testing.T) {
	var m admit.Model
	for i := range 1000 {
		m.Observe(fmt.Sprint("job ", i), admit.Shape{}, 1000)
		m.Observe("often", admit.Shape{}, 1000)
	}
	known := 0
	for i := range 1000 {
		known += m.Predict(fmt.Sprint("job ", i), admit.Shape{}).Runs
	}
	if known != 255 || m.Predict("job 999", admit.Shape{}).Runs == 0 || m.Predict("often", admit.Shape{}).Runs != 256 {
		t.Errorf("%d jobs are known, and often %d runs", known, m.Predict("often", admit.Shape{}).Runs)
	}
}

func TestPredictAllocatesNothing(t *testing.T) {
	m, n := known(), 0
	if allocs := testing.AllocsPerRun(100, func() {
		n++
		m.Predict("join", admit.ShapeOf("rows", n).And("columns", n%7))
	}); allocs > 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func BenchmarkPredict(b *testing.B) {
	m, r := new(admit.Model), rand.New(rand.NewPCG(1, 37))
	for range 300 {
		size := wide(r)
		m.Observe("job", admit.ShapeOf("rows", size[0]), uint64(size[0]))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		m.Predict("job", admit.ShapeOf("rows", i%100_000))
	}
}

func BenchmarkObserve(b *testing.B) {
	m, r := new(admit.Model), rand.New(rand.NewPCG(1, 37))
	b.ReportAllocs()
	for b.Loop() {
		size := wide(r)
		m.Observe("job", admit.ShapeOf("rows", size[0]), uint64(1000+size[0]))
	}
}

func BenchmarkEnterAndLeave(b *testing.B) {
	g, _ := admit.New(admit.Config{Limit: 1 << 30})
	b.ReportAllocs()
	for b.Loop() {
		a, err := g.Enter(b.Context(), "job", admit.Shape{})
		if err != nil {
			b.Fatal(err)
		}
		_ = a.Observe(1000)
		a.Leave()
	}
}
