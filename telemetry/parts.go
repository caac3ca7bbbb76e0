package telemetry

import (
	"strings"

	"github.com/fencepost-gpu/fencepost/core"
)

// parts are the groups that s has a source for.
func (s Source) parts() []part {
	all := []part{{statMetrics, s.collectStats}}
	add := func(present bool, p part) {
		if present {
			all = append(all, p)
		}
	}
	add(s.Operations != nil, part{operationMetrics, s.collectOperations})
	add(s.Holders != nil, part{holderMetrics, s.holderCollector()})
	add(s.Windows != nil, part{windowMetrics, s.collectWindows})
	add(s.Streams != nil, part{streamMetrics, s.collectStreams})
	add(s.Findings != nil, part{findingMetrics, s.collectFindings})
	add(s.Guard != nil, part{guardMetrics, s.collectGuard})
	add(s.Incidents != nil, part{incidentMetrics, s.collectIncidents})
	add(s.Memory != nil, part{deviceMetrics, s.collectMemory})
	add(s.Info != DeviceInfo{}, part{infoMetrics, s.collectInfo})
	add(s.History != nil, part{historyMetrics, s.collectHistory})
	add(s.Build != BuildInfo{}, part{buildMetrics, s.collectBuild})
	add(!s.Started.IsZero(), part{startMetrics, func(out emitter) { out.sendTime(MetricStartTime, s.Started) }})
	add(s.Dumps != nil, part{dumpMetrics, s.collectDumps})
	add(s.LogDropped != nil, part{logMetrics, func(out emitter) { out.send(MetricLogDropped, s.LogDropped()) }})
	add(s.RecordersDropped != nil, part{recorderMetrics, func(out emitter) { out.send(MetricRecordersDropped, s.RecordersDropped()) }})
	add(s.Health != nil, part{healthMetrics, s.collectHealth})
	add(s.StickyErrors != nil, part{stickyMetrics, func(out emitter) { out.send(MetricStickyErrors, s.StickyErrors()) }})
	return all
}

var (
	logMetrics = []definition{
		{name: MetricLogDropped, kind: counter, help: "Log records dropped because a sink could not keep up."},
	}
	recorderMetrics = []definition{
		{name: MetricRecordersDropped, kind: counter, help: "Launch recorders dropped without a commit or an abort."},
	}
	operationMetrics = []definition{
		{name: MetricOperations, kind: counter, labels: []string{"op", "result"}, help: "Calls by operation and result, as callers saw them; the result is ok or the reason of the error. Exemplars are of failed calls of which a span was exported."},
		{name: MetricOperationDuration, kind: histogram, labels: []string{"op"}, help: "Time that callers waited for each call, refused and failed ones too: from the outermost layer, with guard, budget, the driver's calls and, in sampled traces, the spans; enqueued work is not waited for. Classic and native; exemplars are of calls of which a span was exported."},
		{name: MetricRefusals, kind: counter, labels: []string{"reason"}, help: "Allocations and reservations that were refused, by the reason that callers were told. Exemplars are of those of which a span was exported."},
		{name: MetricEventSpansDropped, kind: counter, help: "Refusals, failed calls and findings in traces that are not sampled of which no span was made, because there were more than 50 in a second."},
	}
	streamMetrics = []definition{
		{name: MetricStreams, kind: gauge, labels: []string{"state"}, help: "Streams by state: leased, idle in the pool, or adopted from callers."},
		{name: MetricStreamsLimit, kind: gauge, help: "Streams that the pool may have."},
		{name: MetricStreamsWaiting, kind: gauge, help: "Callers waiting for a stream."},
		{name: MetricStreamAcquisitions, kind: counter, help: "Stream leases granted."},
		{name: MetricStreamRefusals, kind: counter, help: "Stream leases refused or given up while waiting."},
		{name: MetricStreamWaitSeconds, kind: counter, help: "Time that callers spent waiting for a stream."},
		{name: MetricStreamOldestLease, kind: gauge, help: "Age of the stream lease that has been held longest, 0 if none is held."},
	}
	findingMetrics = []definition{
		{name: MetricFindings, kind: counter, labels: []string{"kind", "tag"}, help: "Memory bugs found, by kind and tag of the victim; the first tags, the rest as other.",
			note: "A kind without any has a 0 under `untagged`."},
	}
)

// collectOperations sends every success and every refusal, zero or not, so
// that the first increase is seen as one; other failures appear with their
// first.
func (s Source) collectOperations(out emitter) {
	ops := s.Operations()
	for op := core.OpAllocate; int(op) < operations; op++ {
		out.sendLatency(MetricOperationDuration, ops.latencyOf(op), ops.since, op.String())
		out.send(MetricOperations, ops.Succeeded(op), op.String(), "ok")
		for _, reason := range Reasons() {
			if n := ops.Failed(op, reason); n > 0 {
				out.sendFailures(MetricOperations, n, ops.failures[op][reason], op.String(), reason.String())
			}
		}
	}
	for _, reason := range Reasons() {
		out.sendFailures(MetricRefusals, ops.Refusals(reason), newer(ops.failures[core.OpAllocate][reason], ops.failures[core.OpReserve][reason]), reason.String())
	}
	out.send(MetricEventSpansDropped, ops.spansDropped)
}

func (s Source) collectStreams(out emitter) {
	st := s.Streams()
	out.send(MetricStreams, uint64(st.Leased), "leased")
	out.send(MetricStreams, uint64(st.Idle), "idle")
	out.send(MetricStreams, uint64(st.Adopted), "adopted")
	out.send(MetricStreamsLimit, uint64(st.Limit))
	out.send(MetricStreamsWaiting, uint64(st.Waiting))
	out.send(MetricStreamAcquisitions, st.Acquisitions)
	out.send(MetricStreamRefusals, st.Refusals)
	out.sendFloat(MetricStreamWaitSeconds, st.Waited.Seconds())
	out.sendFloat(MetricStreamOldestLease, st.Oldest.Seconds())
}

// knownKinds are sent even at zero, so that an alert sees the first increase.
var knownKinds = []core.FindingKind{
	core.FindingUseAfterFreeWrite, core.FindingUseAfterFreeRead, core.FindingOutOfBoundsWrite,
	core.FindingUnderflow, core.FindingDoubleFree, core.FindingForeignFree, core.FindingStaleHandle,
	core.FindingMissingFence, core.FindingUseBeforeAlloc, core.FindingUndeclaredAccess,
	core.FindingUninitializedRead, core.FindingReuseRace, core.FindingSealedWrite, core.FindingStrayWrite, core.FindingLeak,
	core.FindingOutOfMemory, core.FindingStickyError, core.FindingDroppedRecorder, core.FindingAccountingMismatch,
}

// collectFindings sends each known kind that has none under the tag of
// untagged blocks: the sum over tags is what an alert looks at.
func (s Source) collectFindings(out emitter) {
	type series struct{ kind, tag string }
	counts, present := map[series]uint64{}, map[string]bool{}
	for _, c := range s.Findings() { // labels that become equal are one series
		key := series{strings.ToValidUTF8(string(c.Kind), "\uFFFD"), strings.ToValidUTF8(string(c.Tag), "\uFFFD")}
		counts[key] += c.Count
		present[key.kind] = true
	}
	for _, kind := range knownKinds {
		if !present[string(kind)] {
			counts[series{string(kind), string(core.Untagged)}] = 0
		}
	}
	for key, n := range counts {
		out.send(MetricFindings, n, key.kind, key.tag)
	}
}
