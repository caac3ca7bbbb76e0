package metrics

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
)

// Jobs gathers what jobs needed and waited for, by their names. The zero value is ready. It tells apart the first [MaxTags]
// names; the rest is [OtherTag]. It is safe for concurrent use; jobs of one name take one lock, and share histograms.
type Jobs struct {
	// byName is replaced, never changed, with adding held.
	byName atomic.Pointer[map[core.Tag]*jobFigures]
	adding sync.Mutex
}

// jobFigures are those of jobs of one name.
type jobFigures struct {
	mu                   sync.Mutex
	peak, area           prometheus.Histogram
	forMemory, forStream prometheus.Histogram
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
	observe(f.forMemory, a.WaitedForMemory.Seconds(), span)
	observe(f.forStream, a.WaitedForStream.Seconds(), span)
	if ran {
		observe(f.peak, float64(a.Bytes), span)
		observe(f.area, a.ByteSeconds, span)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.elapsed += a.Elapsed
	f.unused += a.UnusedByteSeconds
	if ran && a.Predicted > 0 {
		f.predictions.add(a.Predicted, a.Requested)
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
	if name = name.OrUntagged(); all[name] == nil && len(all) >= MaxTags {
		name = OtherTag
	}
	if f := all[name]; f != nil {
		return f
	}
	all = maps.Clone(all)
	f := &jobFigures{peak: amountOf(peakBounds, 1<<6), area: amountOf(areaBounds, 1), forMemory: amountOf(waitBounds, zeroThreshold), forStream: amountOf(waitBounds, zeroThreshold)}
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
		s.byName[name] = &jobFigures{peak: f.peak, area: f.area, forMemory: f.forMemory, forStream: f.forStream,
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
			s.each(func(name string, f *jobFigures) { out.amounts(f.peak, name) })
		}},
	{histogram("gpumem_job_byte_seconds", "What each job took of the memory, in bytes times seconds, padding included, by the job's name, which is its tag. Its sum over time is how many bytes jobs hold. Classic and native, with exemplars.", "tag"),
		func(s JobsSnapshot, out sender) {
			s.each(func(name string, f *jobFigures) { out.amounts(f.area, name) })
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
				out.amounts(f.forMemory, name, "memory")
				out.amounts(f.forStream, name, "stream")
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

// amountOf is a histogram of a quantity, with classic buckets, and native ones that part each power of two into 8. What is at most zero is in
// the zero bucket.
func amountOf(bounds []float64, zero float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "amount", Buckets: bounds, NativeHistogramBucketFactor: 1.1, NativeHistogramZeroThreshold: zero})
}

var (
	peakBounds = prometheus.ExponentialBuckets(1<<16, 2, 23)
	areaBounds = prometheus.ExponentialBuckets(1<<4, 4, 21)
	waitBounds = []float64{1e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
)

func observe(h prometheus.Histogram, v float64, span core.SpanRef) {
	if span.IsZero() {
		h.Observe(v)
		return
	}
	h.(prometheus.ExemplarObserver).ObserveWithExemplar(v, exemplarLabels(span))
}

// labelled is a histogram under another name and labels.
type labelled struct {
	prometheus.Histogram
	desc   *prometheus.Desc
	labels []*dto.LabelPair
}

func (l labelled) Desc() *prometheus.Desc { return l.desc }

func (l labelled) Write(to *dto.Metric) error {
	err := l.Histogram.Write(to)
	to.Label = l.labels
	return err
}

func (s sender) amounts(h prometheus.Histogram, labels ...string) {
	for i, label := range labels {
		labels[i] = strings.ToValidUTF8(label, "\uFFFD")
	}
	s.ch <- labelled{h, s.desc, prometheus.MakeLabelPairs(s.desc, labels)}
}
