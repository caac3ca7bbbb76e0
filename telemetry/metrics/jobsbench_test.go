package metrics_test

import (
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

func BenchmarkJobEnded(b *testing.B) {
	var j metrics.Jobs
	a := core.JobAccount{Peak: core.Peak{Bytes: 3 << 20, ByteSeconds: 5000, Elapsed: time.Second}, WaitedForStream: 30 * time.Nanosecond}
	b.ReportAllocs()
	for b.Loop() {
		j.Ended("sort", &a, true, core.SpanRef{})
	}
}
