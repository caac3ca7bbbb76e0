package metrics

import (
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/core/oplog"
)

// Jobs gathers what jobs needed and waited for, by their names. The zero value is ready. It tells apart the first [MaxTags]
// names; the rest is [OtherTag]. It is safe for concurrent use; jobs of one name take one lock, for some 100 ns.
type Jobs struct {
	// byName is replaced, never changed, with adding held.
	byName atomic.Pointer[map[core.Tag]*jobFigures]
	adding sync.Mutex
}

// jobFigures are those of jobs of one name.
type jobFigures struct {
	mu                   sync.Mutex
	since                time.Time
	peak, area           amountHistogram
	forMemory, forStream amountHistogram
	elapsed, onDevice    time.Duration
	unused               float64
	predictions          predictions
}

// predictions are of the jobs of which something was predicted.
type predictions struct {
	enough, short     uint64 // how many needed at most that, and more
	bytes, over, lack uint64 // what was predicted, and by how much it was too much and too little
}

func (p *predictions) add(predicted, peak uint64) {
	p.bytes += predicted
	if peak > predicted {
		p.short, p.lack = p.short+1, p.lack+peak-predicted
	} else {
		p.enough, p.over = p.enough+1, p.over+predicted-peak
	}
}

// Ended counts a job that has ended. One that got no stream counts by its waits and its time alone;
// span is the job's, if it is exported.
func (j *Jobs) Ended(name core.Tag, a *core.JobAccount, ran bool, span core.SpanRef) {
	f := j.of(name)
	var x *amountExemplar
	if !span.IsZero() {
		x = &amountExemplar{span: span, at: time.Now()}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forMemory.note(&waitGrid, a.WaitedForMemory.Seconds(), x)
	f.forStream.note(&waitGrid, a.WaitedForStream.Seconds(), x)
	f.elapsed += a.Elapsed
	f.unused += a.UnusedByteSeconds
	if ran && a.Predicted > 0 {
		f.predictions.add(a.Predicted, a.Requested)
	}
	if ran {
		f.peak.note(&peakGrid, float64(a.Bytes), x)
		f.area.note(&areaGrid, a.ByteSeconds, x)
	}
}

// Done counts how long the work of a job was held up on the device, as often as its weight says.
func (j *Jobs) Done(w *oplog.DeviceWork) {
	if w.HeldByOthers == 0 {
		return
	}
	f := j.of(w.Job)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onDevice += w.HeldByOthers * time.Duration(w.Weight)
}

func (j *Jobs) of(name core.Tag) *jobFigures {
	if all := j.byName.Load(); all != nil {
		if f := (*all)[name]; f != nil {
			return f
		}
	}
	return j.first(name)
}

// first is the figures of a name that has none of its own yet.
func (j *Jobs) first(name core.Tag) *jobFigures {
	j.adding.Lock()
	defer j.adding.Unlock()
	all := map[core.Tag]*jobFigures{}
	if now := j.byName.Load(); now != nil {
		all = *now
	}
	if name = core.Tag(names.Bound(string(labelOf(name)))); all[name] == nil && len(all) >= MaxTags {
		name = OtherTag
	}
	if f := all[name]; f != nil {
		return f
	}
	all = maps.Clone(all)
	f := &jobFigures{since: time.Now()}
	all[core.Tag(strings.Clone(string(name)))] = f // names may be parts of large texts
	j.byName.Store(&all)
	return f
}

// JobsSnapshot is what [Jobs] have gathered.
type JobsSnapshot struct{ byName map[core.Tag]*jobFigures }

// Snapshot is what was gathered so far.
func (j *Jobs) Snapshot() JobsSnapshot {
	s := JobsSnapshot{map[core.Tag]*jobFigures{}}
	all := j.byName.Load()
	if all == nil {
		return s
	}
	for name, f := range *all {
		f.mu.Lock()
		s.byName[name] = &jobFigures{since: f.since, peak: f.peak.clone(), area: f.area.clone(), forMemory: f.forMemory.clone(), forStream: f.forStream.clone(),
			elapsed: f.elapsed, onDevice: f.onDevice, unused: f.unused, predictions: f.predictions}
		f.mu.Unlock()
	}
	return s
}

// each calls send for each name, in order.
func (s JobsSnapshot) each(send func(name string, f *jobFigures)) {
	for _, name := range slices.Sorted(maps.Keys(s.byName)) {
		send(string(name), s.byName[name])
	}
}

var jobMetrics = []family[JobsSnapshot]{
	{histogram("gpumem_job_peak_bytes", "The most memory that was live at once of each job, padding included, by the job's name, which is its tag; 64 names, the rest as other. Classic and native; exemplars are of jobs of which a span was exported.", "tag"),
		func(s JobsSnapshot, out sender) {
			s.each(func(name string, f *jobFigures) { out.amounts(&f.peak, &peakGrid, f.since, name) })
		}},
	{histogram("gpumem_job_byte_seconds", "What each job took of the memory, in bytes times seconds, padding included, by the job's name, which is its tag. Its sum over time is how many bytes jobs hold. Classic and native, with exemplars.", "tag"),
		func(s JobsSnapshot, out sender) {
			s.each(func(name string, f *jobFigures) { out.amounts(&f.area, &areaGrid, f.since, name) })
		}},
	{counter("gpumem_job_unused_byte_seconds_total", "What jobs had reserved and not live, in bytes times seconds, by the job's name, which is its tag. Its increase over time is how many bytes are held for nothing.", "tag"),
		func(s JobsSnapshot, out sender) {
			s.each(func(name string, f *jobFigures) { out.send(f.unused, name) })
		}},
	{counter("gpumem_job_predictions_total", "Jobs of which it was known what they would need, by the job's name, which is its tag, and whether that was enough.", "tag", "outcome"),
		func(s JobsSnapshot, out sender) {
			s.each(func(name string, f *jobFigures) {
				out.send(float64(f.predictions.enough), name, "enough")
				out.send(float64(f.predictions.short), name, "short")
			})
		}},
	{counter("gpumem_job_predicted_bytes_total", "Bytes that those jobs were predicted to need, as they ask for them, by the job's name, which is its tag.", "tag"),
		func(s JobsSnapshot, out sender) {
			s.each(func(name string, f *jobFigures) { out.send(float64(f.predictions.bytes), name) })
		}},
	{counter("gpumem_job_prediction_error_bytes_total", "By how many bytes the predictions were too high (over) and too low (under), by the job's name, which is its tag.", "tag", "error"),
		func(s JobsSnapshot, out sender) {
			s.each(func(name string, f *jobFigures) {
				out.send(float64(f.predictions.over), name, "over")
				out.send(float64(f.predictions.lack), name, "under")
			})
		}},
	{histogram("gpumem_job_wait_seconds", "Time that each job waited for room in the memory, for its reservation and its allocations, and for its stream, by the job's name, which is its tag; jobs that waited in vain for their stream too. Classic and native, with exemplars.", "tag", "for"),
		func(s JobsSnapshot, out sender) {
			s.each(func(name string, f *jobFigures) {
				out.amounts(&f.forMemory, &waitGrid, f.since, name, "memory")
				out.amounts(&f.forStream, &waitGrid, f.since, name, "stream")
			})
		}},
	{counter("gpumem_job_device_wait_seconds_total", "Time that jobs' streams stood on the device behind the work of others, by the job's name, which is its tag: of the launches and allocations that were timed, which count for all.", "tag"),
		func(s JobsSnapshot, out sender) {
			s.each(func(name string, f *jobFigures) { out.send(f.onDevice.Seconds(), name) })
		}},
	{counter("gpumem_job_seconds_total", "Time that jobs took, waits included, by the job's name, which is its tag. Its increase over time is how many jobs there are at once.", "tag"),
		func(s JobsSnapshot, out sender) {
			s.each(func(name string, f *jobFigures) { out.send(f.elapsed.Seconds(), name) })
		}},
}

// amountGrid is the classic and the native buckets of a quantity. Native ones part each power of two into 8.
type amountGrid struct {
	// bounds are those of the classic buckets; one more has what is above.
	bounds []float64
	// What is at most 2^lowest is in the zero bucket, what is above 2^highest in the last one.
	lowest, highest int
}

var (
	peakGrid = amountGrid{powers(16, 38, 1), 6, 44}
	areaGrid = amountGrid{powers(4, 44, 2), 0, 54}
	waitGrid = amountGrid{[]float64{1e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}, -24, 10}
)

// powers are those of two from one exponent to another.
func powers(from, to, step int) (bounds []float64) {
	for e := from; e <= to; e += step {
		bounds = append(bounds, math.Ldexp(1, e))
	}
	return bounds
}

// amountHistogram counts quantities; the zero one is empty.
type amountHistogram struct {
	count   uint64
	sum     float64
	classic []uint64
	native  []int64 // of which the first is the zero bucket
	newest  []*amountExemplar
}

// amountExemplar is a job of which a span was exported.
type amountExemplar struct {
	span  core.SpanRef
	value float64
	at    time.Time
}

// note counts one, of which x, unless it is nil, has the span.
func (h *amountHistogram) note(g *amountGrid, v float64, x *amountExemplar) {
	if h.native == nil {
		h.classic, h.native, h.newest = make([]uint64, len(g.bounds)+1), make([]int64, (g.highest-g.lowest)*perOctave+1), make([]*amountExemplar, len(g.bounds)+1)
	}
	h.count++
	h.sum += v
	in, _ := slices.BinarySearch(g.bounds, v)
	h.classic[in]++
	key := 0
	if v > 0 {
		key = nativeKey(v) - g.lowest*perOctave
	}
	h.native[min(max(key, 0), len(h.native)-1)]++
	if x != nil {
		h.newest[in] = &amountExemplar{x.span, v, x.at}
	}
}

// nativeKey is the index of the native bucket of a quantity above zero: its bound is 2^(key/8).
func nativeKey(v float64) int {
	part, exponent := math.Frexp(v)
	i := 0
	for i < perOctave && part > octave[i] {
		i++
	}
	return (exponent-1)*perOctave + i
}

// octave are the bounds of the native buckets from a half to below one.
var octave = func() (bounds [perOctave]float64) {
	for i := range bounds {
		bounds[i] = math.Exp2(float64(i)/perOctave) / 2
	}
	return bounds
}()

func (h *amountHistogram) clone() amountHistogram {
	return amountHistogram{h.count, h.sum, slices.Clone(h.classic), slices.Clone(h.native), slices.Clone(h.newest)}
}

// amounts sends a histogram of quantities.
func (s sender) amounts(h *amountHistogram, g *amountGrid, since time.Time, labels ...string) {
	classic, below := map[float64]uint64{}, uint64(0)
	native, zero := map[int]int64{}, uint64(0)
	for i, n := range h.native {
		if i == 0 {
			zero = uint64(n)
		} else if n > 0 {
			native[g.lowest*perOctave+i] = n
		}
	}
	for i, bound := range g.bounds {
		if h.classic != nil {
			below += h.classic[i]
		}
		classic[bound] = below
	}
	var exemplars []prometheus.Exemplar
	for _, x := range h.newest {
		if x != nil {
			exemplars = append(exemplars, (&exemplar{span: x.span, at: x.at}).forPrometheus(x.value))
		}
	}
	slices.SortFunc(exemplars, func(a, b prometheus.Exemplar) int { return a.Timestamp.Compare(b.Timestamp) })
	s.both(h.count, h.sum, classic, native, zero, math.Ldexp(1, g.lowest), since, exemplars, labels...)
}
