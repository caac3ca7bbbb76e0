package metrics_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// jobs are two that ran, one of which waited, and one that got no stream.
func jobs() metrics.JobsSnapshot {
	var j metrics.Jobs
	a := core.JobAccount{Predicted: 4 << 20, Peak: core.Peak{Requested: 3 << 20, Bytes: 3 << 20, ByteSeconds: 5000, Elapsed: time.Second}, UnusedByteSeconds: 700, WaitedForMemory: 30 * time.Millisecond}
	j.Ended("sort", &a, true, core.SpanRef{})
	j.Ended("join", &core.JobAccount{Predicted: 200, Peak: core.Peak{Requested: 300, Bytes: 300, ByteSeconds: .5, Elapsed: time.Millisecond}}, true, core.SpanRef{})
	j.Ended("join", &core.JobAccount{Predicted: 200, Peak: core.Peak{Elapsed: 2 * time.Second}, WaitedForStream: 2 * time.Second}, false, core.SpanRef{})
	j.Done(&oplog.DeviceWork{Launch: 1, Weight: 250, Job: "join", HeldByOthers: 4 * time.Millisecond})
	return j.Snapshot()
}

// gather is a scrape of jobs, by the metric's name.
func gather(t *testing.T, j *metrics.Jobs) map[string][]*dto.Metric {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(must.Get(metrics.NewCollector(metrics.Source{Device: &device{}, Jobs: j.Snapshot}))(t))
	all := map[string][]*dto.Metric{}
	for _, f := range must.Get(registry.Gather())(t) {
		all[f.GetName()] = f.GetMetric()
	}
	return all
}

// However many names there are, 64 have series of their own, and no job of many goroutines is lost.
func TestJobsAreBoundedAndCounted(t *testing.T) {
	var j metrics.Jobs
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 500 {
				j.Ended(core.Tag(fmt.Sprint("job ", i%200)), &core.JobAccount{Peak: core.Peak{Bytes: 1 << 20}, UnusedByteSeconds: 1}, true, core.SpanRef{TraceID: [16]byte{1}, SpanID: [8]byte{byte(g + 1)}})
				j.Done(&oplog.DeviceWork{Weight: 2, Job: core.Tag(fmt.Sprint("job ", i%200)), HeldByOthers: time.Second})
				_ = j.Snapshot()
			}
		})
	}
	all.Wait()
	got := gather(t, &j)
	count, unused, held := uint64(0), 0.0, 0.0
	for i, m := range got["gpumem_job_peak_bytes"] {
		count += m.GetHistogram().GetSampleCount()
		unused += got["gpumem_job_unused_byte_seconds_total"][i].GetCounter().GetValue()
		held += got["gpumem_job_device_wait_seconds_total"][i].GetCounter().GetValue()
		exemplars := 0
		for _, b := range m.GetHistogram().GetBucket() {
			if b.GetExemplar() != nil {
				exemplars++
			}
		}
		if exemplars != 1 {
			t.Errorf("%v has %d exemplars of one bucket", m.GetLabel(), exemplars)
		}
	}
	if n := len(got["gpumem_job_peak_bytes"]); n != metrics.MaxTags+1 || count != 2000 || unused != 2000 || held != 4000 {
		t.Errorf("%d series of %d jobs, of %g unused, held up for %g s", n, count, unused, held)
	}
}
