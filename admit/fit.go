package admit

import (
	"cmp"
	"math"
	"slices"
)

// What the statistics count with.
const (
	// window is how many runs are kept: the largest of so many errors is exceeded by the next
	// with a probability of 1/(window+1).
	window = 256
	// enough is how many runs make a prediction known.
	enough = 20
	// slack is the least margin: what drifts slowly stays below it.
	slack = 1.0 / 64
)

// nothing is the peak of a run that needed no memory. It is above zero because errors are factors
// too, and so far below one byte that a job that needs nothing is predicted to need nothing.
const nothing = 0.25

func atLeastNothing(peak float64) float64 {
	if peak < 1 {
		return nothing
	}
	return peak
}

// run is one run of a job: what its size was, its peak in bytes, and its stamp.
type run struct {
	size  [2]float64
	peak  float64
	stamp stamp
}

// point is a run on the one axis that its size was brought to.
type point struct{ at, peak, base float64 }

// rule is how a base is read off between two points.
type rule uint8

const (
	fitted rule = iota // what the sizes alone say
	linear             // on the line between them
	upper              // that of the upper one
	rules
)

// fit predicts peaks from runs. It does not change.
//
// The sizes are brought to one axis: the sum of 1, x, x², y, xy and y² with factors of zero or more
// that fits the peaks best. On it, the envelope of the runs (the largest peak up to each point) is
// monotone. Each run is predicted from the others (by the sum itself: from all, which makes little
// difference from a dozen runs on), under each rule and with errors as factors and as differences;
// what would have reserved the fewest bytes for all of them, with no run under its reservation, is
// taken.
type fit struct {
	runs     int
	scale    [2]float64 // the largest sizes
	flat     bool       // none has a second size
	factors  [6]float64
	envelope []point // by at, which differ
	rule     rule
	differ   bool // errors are differences, not factors
	// low and high bound all errors, calmLow and calmHigh the middle eight tenths.
	low, high, calmLow, calmHigh float64
	// raise is the factor that recent runs have shown to be missing.
	raise float64
}

func newFit(runs []run) *fit {
	f := &fit{runs: len(runs), raise: 1, scale: [2]float64{1, 1}, flat: true}
	for _, r := range runs {
		f.scale[0], f.scale[1] = max(f.scale[0], r.size[0]), max(f.scale[1], r.size[1])
		f.flat = f.flat && r.size[1] == 0
	}
	f.factors = f.leastSquares(runs)
	points := make([]point, len(runs))
	for i, r := range runs {
		points[i] = point{at: f.at(r.size), peak: r.peak}
	}
	slices.SortFunc(points, func(a, b point) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return cmp.Compare(b.peak, a.peak)
	})
	f.choose(points)
	top := 0.0
	f.envelope = points[:0]
	for _, p := range points {
		top = max(top, p.peak)
		if n := len(f.envelope); n > 0 && f.envelope[n-1].at == p.at {
			f.envelope[n-1].peak = top
		} else {
			f.envelope = append(f.envelope, point{at: p.at, peak: top})
		}
	}
	return f
}

// terms are those of a size whose sum is its place on the axis.
func (f *fit) terms(size [2]float64) [6]float64 {
	x, y := size[0]/f.scale[0], size[1]/f.scale[1]
	return [6]float64{1, x, x * x, y, x * y, y * y}
}

// count is how many of the terms may be above zero.
func (f *fit) count() int {
	if f.flat {
		return 3
	}
	return 6
}

// at is the place of a size on the axis, which is about the bytes it needs: 1 at least.
func (f *fit) at(size [2]float64) float64 {
	at, terms := 0.0, f.terms(size)
	for i, t := range terms[:f.count()] {
		at += f.factors[i] * t
	}
	return max(1, at)
}

// leastSquares are the factors of zero or more with the least sum of squares of the relative
// errors, leaving out what would be negative.
func (f *fit) leastSquares(runs []run) (factors [6]float64) {
	var products [6][6]float64
	var sums [6]float64
	for _, r := range runs {
		t := f.terms(r.size)
		for i := range t[:f.count()] {
			t[i] /= r.peak // so that errors are relative
			sums[i] += t[i]
			for j, other := range t[:i+1] {
				products[i][j] += t[i] * other
				products[j][i] = products[i][j]
			}
		}
	}
	in := [6]bool{true, true, true, true, true, true}
	for {
		factors = solve(products, sums, in)
		worst := slices.Index(factors[:], slices.Min(factors[:]))
		if factors[worst] >= 0 {
			return factors
		}
		in[worst] = false
	}
}

// solve solves the equations by elimination for those factors that are in. The others are zero, and
// so are those that the equations leave open.
func solve(m [6][6]float64, sums [6]float64, in [6]bool) (factors [6]float64) {
	for i, row := range m {
		for k, above := range m[:i] {
			if in[k] {
				by := row[k] / above[k]
				for j := range row {
					row[j] -= by * above[j]
				}
				sums[i] -= by * sums[k]
			}
		}
		in[i] = in[i] && row[i] > 1e-9*m[i][i]
		m[i] = row
	}
	for i, row := range slices.Backward(m[:]) {
		if in[i] {
			rest := sums[i]
			for j, factor := range factors { // those before it are zero yet
				rest -= row[j] * factor
			}
			factors[i] = rest / row[i]
		}
	}
	return factors
}

// choose takes the rule and the kind of errors under which the points need the fewest bytes.
func (f *fit) choose(points []point) {
	least := math.Inf(1)
	for r := range rules {
		if r == fitted && len(points) < 2*len(f.factors) {
			continue // too few to know its errors
		}
		others(points, r)
		n, bases := 0.0, 0.0
		var sums, highs [2]float64 // of factors and of differences
		highs[0] = 1
		for _, p := range points {
			if p.base > 0 {
				factor, difference := score(p.peak, p.base, false), score(p.peak, p.base, true)
				n, bases = n+1, bases+p.base
				sums[0], sums[1] = sums[0]+factor, sums[1]+difference
				highs[0], highs[1] = max(highs[0], factor), max(highs[1], difference)
			}
		}
		for i, high := range highs {
			if n > 0 { // the next error may be larger than all so far, the more so after few
				high += (high - sums[i]/n) * 4 / n
			}
			total := bases * high
			if i == 1 {
				total = bases + float64(len(points))*high
			}
			if total < least {
				least, f.rule, f.differ, f.high = total, r, i == 1, high
			}
		}
	}
	others(points, f.rule)
	var room [window]float64
	scores := room[:0]
	for _, p := range points {
		if p.base > 0 {
			scores = append(scores, score(p.peak, p.base, f.differ))
		}
	}
	if len(scores) == 0 {
		scores = append(scores, f.high)
	}
	slices.Sort(scores)
	n := len(scores)
	f.low, f.calmLow, f.calmHigh = scores[0], scores[n/10], scores[n-1-n/10]
}

// others writes beside each point its base as the others say, or zero for one beyond them.
func others(points []point, r rule) {
	top := 0.0
	for i := range points {
		p := &points[i]
		switch {
		case r == fitted:
			p.base = p.at
		case i == len(points)-1:
			p.base = 0
			if i > 0 && points[i-1].at == p.at {
				p.base = top
			}
		default:
			next := max(top, points[i+1].peak)
			before := p.at
			if i > 0 {
				before = points[i-1].at
			}
			p.base = between(before, top, points[i+1].at, next, p.at, r)
			if i == 0 {
				p.base = next
			}
		}
		top = max(top, p.peak)
	}
}

// between is the base at a place between two points.
func between(at0, peak0, at1, peak1, at float64, r rule) float64 {
	switch {
	case at <= at0 && at0 < at1:
		return peak0
	case r == upper || at0 == at1:
		return peak1
	}
	return peak0 + (peak1-peak0)*(at-at0)/(at1-at0)
}

// score is the error of a base, and unscore the peak that has it.
func score(peak, base float64, differ bool) float64 {
	if differ {
		return peak - base
	}
	return peak / base
}

func unscore(base, score float64, differ bool) float64 {
	if differ {
		return max(0, base+score)
	}
	return base * score
}

// base is the peak of a size without a margin, and by what factor the size is beyond all that
// were seen.
func (f *fit) base(size [2]float64) (base, beyond float64) {
	seen := [2]float64{min(size[0], f.scale[0]), min(size[1], f.scale[1])}
	beyond = max(1, size[0]/f.scale[0]) * max(1, size[1]/f.scale[1])
	at := f.at(seen)
	if base = at; f.rule != fitted {
		base = f.onEnvelope(at)
	}
	if beyond > 1 { // more than in proportion
		base *= max(math.Pow(beyond, 1.25), f.at(size)/at)
	}
	return base, beyond
}

// onEnvelope is what the envelope says of a place on the axis.
func (f *fit) onEnvelope(at float64) float64 {
	i, _ := slices.BinarySearchFunc(f.envelope, at, func(p point, at float64) int { return cmp.Compare(p.at, at) })
	switch last := f.envelope[len(f.envelope)-1]; i {
	case len(f.envelope):
		return last.peak * at / last.at
	case 0:
		return f.envelope[0].peak
	}
	a, b := f.envelope[i-1], f.envelope[i]
	return between(a.at, a.peak, b.at, b.peak, at, f.rule)
}

// reserve is how many bytes to set aside for a base.
func (f *fit) reserve(base float64) float64 {
	few := 1.0
	if f.runs < enough {
		few += 0.5 / float64(f.runs)
	}
	return unscore(base, f.high, f.differ) * (1 + slack) * few * f.raise
}

// like reports whether another fit reserves as much for runs of these sizes, but for a five hundredth.
func (f *fit) like(other *fit, runs []run) bool {
	now, before := 0.0, 0.0
	for _, r := range runs {
		base, _ := f.base(r.size)
		now += f.reserve(base)
		base, _ = other.base(r.size)
		before += other.reserve(base)
	}
	return math.Abs(now-before) < before/512
}

func (f *fit) predict(size [2]float64) Prediction {
	base, beyond := f.base(size)
	seen := base
	if beyond > 1 { // what is larger needs as much at least
		seen, _ = f.base([2]float64{min(size[0], f.scale[0]), min(size[1], f.scale[1])})
	}
	low := unscore(seen, f.low, f.differ) * (1 - slack)
	if f.runs < enough {
		low *= 1 - 0.5/float64(f.runs)
	}
	high := f.reserve(base)
	return Prediction{Bytes: upTo(high), Low: whole(min(low, high)), High: upTo(max(2*high-base, f.reserve(f.step(base)))),
		Runs: f.runs, Known: f.runs >= enough && beyond <= 1.5}
}

// step is the next step above a base of memory that grows in steps, or the base.
func (f *fit) step(base float64) float64 {
	if f.rule == upper {
		for _, p := range f.envelope {
			if p.peak > base*(1+2*slack) {
				return p.peak
			}
		}
	}
	return base
}

// upTo is the whole bytes that an upper end takes, and none of less than one.
func upTo(n float64) uint64 {
	if n < 1 {
		return 0
	}
	return whole(math.Ceil(n))
}

// whole is a number of bytes that there can be.
func whole(n float64) uint64 { return uint64(min(max(0, n), 1<<62)) }
