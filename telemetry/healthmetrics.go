package telemetry

import "github.com/fencepost-gpu/fencepost/core"

var (
	healthMetrics = []definition{
		{name: MetricHealth, kind: gauge, labels: []string{"state"}, help: "How well the runtime is: 1 for the state it is in, 0 for the others."},
		{name: MetricHealthReasons, kind: gauge, labels: []string{"reason"}, help: "Why the runtime is not well: 1 for each reason that holds, 0 for the others."},
		{name: MetricDeviceLost, kind: gauge, help: "1 if the device's context is lost for the rest of the process, however many errors said so, or else 0."},
	}
	stickyMetrics = []definition{
		{name: MetricStickyErrors, kind: counter, help: "Driver errors seen that lose the device's context for the rest of the process; one lost device may answer with many, see gpumem_device_lost."},
	}
)

// collectHealth sends all states and all reasons, so that a panel and an alert
// see each before it is first true.
func (s Source) collectHealth(out emitter) {
	h := s.Health()
	out.send(MetricDeviceLost, oneIf(h.State == core.HealthPoisoned))
	for _, state := range core.HealthStates() {
		out.send(MetricHealth, oneIf(state == h.State), state.String())
	}
	holds := map[core.HealthReason]bool{}
	for _, sign := range h.Signs {
		holds[sign.Reason] = true
	}
	for _, reason := range core.HealthReasons() {
		out.send(MetricHealthReasons, oneIf(holds[reason]), string(reason))
	}
}

func oneIf(is bool) uint64 {
	if is {
		return 1
	}
	return 0
}
