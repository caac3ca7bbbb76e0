package admit

import (
	"cmp"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core/names"
)

// kinds is how many kinds of jobs a model keeps.
const kinds = 256

// Shape is one or two named numbers that the memory of a job depends on, such as its rows. The zero
// Shape is that of a job that always does the same.
type Shape struct {
	names   [2]string
	numbers [2]int
}

// ShapeOf is a shape of one number. A negative one counts as zero. The name comes from a small fixed
// set, as that of the job does: it says which number is meant.
func ShapeOf(name string, n int) Shape {
	return Shape{names: [2]string{names.Bound(name)}, numbers: [2]int{max(0, n)}}
}

// And is the shape with a second number, or with another second one. It should grow the memory, as
// the first does: a job that needs less of it is predicted as if it did not.
func (s Shape) And(name string, n int) Shape {
	s.names[1], s.numbers[1] = names.Bound(name), max(0, n)
	return s
}

func (s Shape) size() [2]float64 {
	return [2]float64{float64(s.numbers[0]), float64(s.numbers[1])}
}

// Prediction is what a job will need. All sizes are bytes.
type Prediction struct {
	// Bytes is the upper end: more than that is needed by at most one job in a hundred of those
	// that are known. Low is what the job needs at least. Both are 0 of a job that was never seen.
	Bytes, Low uint64
	// High is what one of those few needs, most often: the next step of memory that grows in steps, and else
	// as much above Bytes as that is above what is expected.
	High uint64
	// Runs is how many runs it is learned from, at most 256: the last ones, and those since the
	// job's memory has changed in a way that leaves earlier ones without a meaning.
	Runs int
	// Known: from 20 runs on, for a shape at most half as large again as any of them. What is not
	// known is predicted with a margin that shrinks as the runs come, and for larger shapes with
	// more than in proportion.
	Known bool
}

// Model learns the peaks of jobs from those of their last runs, by name and shape; see the package
// comment for how. Its zero value knows nothing. It keeps the last 256 runs of each of the 256 kinds of jobs
// (a name, and the names of a shape's numbers) that ran last: 25 kB each at most. It is safe for
// concurrent use. A nil one learns nothing.
type Model struct {
	mu     sync.Mutex // of who adds a curve
	curves atomic.Pointer[map[kind]*curve]
	forgot map[string]stamp // jobs, and the last runs of them that are not to be learned from a file
}

// stamp tells runs apart, also those of several processes, and says which is later: microseconds
// since 1970, and random bits.
type stamp uint64

const randomBits = 12

// latest is the latest stamp that a file may have, of 2076.
const latest stamp = 3 << 62

// after is a stamp of now that is later than another one.
func after(last stamp) stamp {
	now := max(stamp(time.Now().UnixMicro()), last>>randomBits+1)
	return now<<randomBits | stamp(rand.Uint64N(1<<randomBits))
}

type kind struct {
	job   string
	names [2]string
}

func kindOf(job string, s Shape) kind { return kind{names.Bound(job), s.names} }

// Predict is what a job of this name and shape will need. It takes no lock and allocates nothing.
func (m *Model) Predict(job string, s Shape) Prediction {
	if c := m.curve(kindOf(job, s)); c != nil {
		return c.fit.Load().predict(s.size())
	}
	return Prediction{}
}

// Observe learns the peak, in bytes, of a job that has ended as it should. One that was broken off
// would teach less than jobs need. A peak of 0 is learned too: the job needs no memory. It does not
// block for long: now and then it computes for some tens of microseconds.
func (m *Model) Observe(job string, s Shape, peak uint64) {
	if m == nil {
		return
	}
	k, r := kindOf(job, s), run{size: s.size(), peak: atLeastNothing(float64(peak))}
	c := m.curve(k)
	if c == nil {
		if c = m.add(k, record{runs: []run{r}}); c == nil {
			return
		}
	}
	c.observe(r)
}

// Forget forgets what was learned of a job, in all shapes: after a deploy, for instance, with which it
// needs less than a limit that it was refused for, because a job that is refused teaches nothing.
// [Model.Save] then drops these runs from its file. Another process that has learned the job must
// forget it too.
func (m *Model) Forget(job string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	job = names.Bound(job)
	last := after(0)
	if old := m.curves.Load(); old != nil {
		curves := maps.Clone(*old)
		maps.DeleteFunc(curves, func(k kind, c *curve) bool {
			if k.job == job {
				last = max(last, stamp(c.used.Load()))
			}
			return k.job == job
		})
		m.curves.Store(&curves)
	}
	if m.forgot == nil {
		m.forgot = map[string]stamp{}
	}
	if m.forgot[job] = last; len(m.forgot) > kinds {
		delete(m.forgot, slices.MinFunc(slices.Collect(maps.Keys(m.forgot)),
			func(a, b string) int { return cmp.Compare(m.forgot[a], m.forgot[b]) }))
	}
}

func (m *Model) curve(k kind) *curve {
	if m != nil {
		if curves := m.curves.Load(); curves != nil {
			return (*curves)[k]
		}
	}
	return nil
}

// add adds the curve of a kind, in place of the one whose last run is the longest ago if there are
// too many. If it was added meanwhile it is returned, and has not learned the runs. A run without a
// stamp is of now. Runs from before the job was forgotten are left out.
func (m *Model) add(k kind, of record) *curve {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.curve(k); c != nil {
		return c
	}
	forgot := m.forgot[k.job]
	of.runs = slices.DeleteFunc(of.runs, func(r run) bool { return r.stamp > 0 && r.stamp <= forgot })
	if len(of.runs) == 0 {
		return nil
	}
	curves := map[kind]*curve{}
	if old := m.curves.Load(); old != nil {
		maps.Copy(curves, *old)
	}
	if len(curves) >= kinds {
		delete(curves, slices.MinFunc(slices.Collect(maps.Keys(curves)), func(a, b kind) int {
			return cmp.Compare(curves[a].used.Load(), curves[b].used.Load())
		}))
	}
	last := &of.runs[len(of.runs)-1]
	if last.stamp == 0 {
		last.stamp = after(forgot)
	}
	c := &curve{runs: of.runs, from: of.from}
	c.used.Store(uint64(last.stamp))
	c.fit.Store(newFit(of.runs))
	curves[k] = c
	m.curves.Store(&curves)
	return nil
}

const (
	// streak is how many runs in a row, all above or all below the middle eight tenths of the
	// errors, mean that the job has changed: chance does that twice in a hundred thousand runs.
	streak = 5
	// sure is how many of them, the last, come after the change in all likelihood: one before it is
	// outside the middle by chance, and two are one time in a hundred.
	sure = 3
	// mixed is how many runs in a row, above or below, mean the same: chance does that as rarely.
	mixed = 8
	// carried is how many earlier runs are carried over a change.
	carried = window / 4
	// A run under its reservation widens the margin by widen, and each run narrows it by a two
	// hundredth of that: in the long run one in two hundred is, whatever they are like.
	widen, rate = 0.02, 0.005
)

// curve is what is known of one kind of jobs.
type curve struct {
	fit  atomic.Pointer[fit]
	used atomic.Uint64 // the last stamp

	mu    sync.Mutex
	runs  []run // the last of them, the newest last
	from  stamp // runs before it say nothing any more
	since int   // runs since the fit was made
	every int   // after how many a new one is made
	row   int   // runs in a row above the middle of the errors, or below if negative
	out   int   // runs in a row above or below it
	extra float64
	// fell and wary are the runs until a change to less is no more news, and until one is believed
	// again: not soon after one that was wrong, as where phases alternate.
	fell, wary int
}

// observe learns a run. It makes a new fit after a quarter more runs, or after half as many more if the last
// one was like the one before, and at once of what does not fit, but not while the job may be changing: until
// that is known the reservations are raised by as much as the runs were above theirs.
func (c *curve) observe(r run) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.runs) == 2*window {
		c.runs = append(c.runs[:0], c.runs[window+1:]...)
	}
	r.stamp = after(stamp(c.used.Load()))
	c.runs = append(c.runs, r)
	c.since++
	c.fell, c.wary = max(0, c.fell-1), max(0, c.wary-1)
	c.used.Store(uint64(r.stamp))
	f := c.fit.Load()
	base, beyond := f.base(r.size)
	if score(r.peak, base, f.differ) < f.low {
		c.every = f.runs / 4 // the fit may be too wide
	}
	switch {
	case beyond > 1: // it was predicted with caution, and is no sign of a change
		c.row = 0
	case r.peak > unscore(base, f.calmHigh, f.differ)*(1+slack):
		c.row = max(1, c.row+1)
	case r.peak < unscore(base, f.calmLow, f.differ)*(1-slack):
		c.row = min(-1, c.row-1)
	default:
		c.row = 0
	}
	if c.out++; c.row == 0 {
		c.out = 0
	}
	reserved := f.reserve(base)
	under := r.peak > reserved && beyond == 1
	if under {
		c.extra += widen
	}
	switch {
	case c.row == streak || c.row == -streak && c.wary == 0:
		if c.row < 0 {
			c.fell = 2 * window
		} else if c.fell > 0 {
			c.fell, c.wary = 0, 2*window
		}
		c.replace(changed(f, c.runs))
		c.row, c.out = 0, 0
		c.refit()
	case c.out == mixed && c.wary == 0: // nothing before says anything
		c.replace(c.runs[len(c.runs)-2*sure:])
		c.row, c.out = 0, 0
		c.refit()
	case under && c.row > 0 && f.runs >= streak: // fewer say too little to hold on to
		raised := *f
		raised.raise = min(4, raised.raise*r.peak/reserved)
		c.fit.Store(&raised)
	case under, beyond > 1, c.row == 0 && f.raise > 1+c.extra,
		(c.since >= c.every || f.runs <= window/8) && c.row <= 1 && (c.row >= -1 || c.wary > 0):
		c.refit()
	}
}

// replace forgets all runs but these. Those that are no more what was observed are later than those
// that are.
func (c *curve) replace(runs []run) {
	c.from = runs[0].stamp
	c.runs = append(c.runs[:0], runs...)
	for i := range c.runs {
		if c.runs[i].stamp < c.from {
			c.runs[i].stamp = after(stamp(c.used.Load()))
			c.used.Store(uint64(c.runs[i].stamp))
		}
	}
}

func (c *curve) refit() {
	c.extra = max(0, c.extra-widen*rate*float64(c.since))
	c.since = 0
	f := newFit(c.runs[max(0, len(c.runs)-window):])
	f.raise += c.extra
	if c.every = min(2*c.every, window/2); !f.like(c.fit.Load(), c.runs[max(0, len(c.runs)-8):]) {
		c.every = f.runs / 4
	}
	c.fit.Store(f)
}

// changed is what is left of the runs when the last have shown that the job has changed: these, and
// what the earlier ones would be now, where one factor explains the last as well as runs were
// explained before, and as far as their sizes go.
func changed(f *fit, runs []run) []run {
	split := len(runs) - sure
	left := slices.Clone(runs[split:])
	now, usual, worst := 0.0, 2*slack, 0.0
	least, most := math.Inf(1), 0.0
	for _, r := range left {
		base, _ := f.base(r.size)
		now += r.peak / base / sure
		usual = max(usual, (unscore(base, f.high, f.differ)-unscore(base, f.low, f.differ))/base)
		least, most = min(least, base), max(most, base)
	}
	for _, r := range left {
		base, _ := f.base(r.size)
		worst = max(worst, math.Abs(base*now/r.peak-1))
	}
	if f.runs < enough || worst > min(usual, 0.5) {
		return left
	}
	old := runs[max(0, split-carried):split]
	factors := make([]float64, len(old))
	for i, r := range old {
		base, _ := f.base(r.size)
		factors[i] = r.peak / base
	}
	before := slices.Sorted(slices.Values(factors))[len(factors)/2]
	for i, r := range old {
		if base, _ := f.base(r.size); base < least/2 || base > most*2 {
			continue
		}
		if math.Abs(factors[i]-before) <= math.Abs(factors[i]-now) { // it was before the change
			r.peak = atLeastNothing(min(math.Round(r.peak*now/before), mostPeak))
		}
		left = append(left, r)
	}
	return left
}
