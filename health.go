package fencepost

import (
	"context"
	"net/http"
	"slices"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/internal/health"
	"github.com/fencepost-gpu/fencepost/internal/legible"
	"github.com/fencepost-gpu/fencepost/internal/operators"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
	"github.com/fencepost-gpu/fencepost/telemetry/dump"
)

// Health is how well the runtime is: ok; degraded, with the reasons; closed; or
// poisoned, when a sticky error lost the device and every call is refused. See
// docs/operate.md for when each reason begins and ends. It makes no device call
// and takes no lock: what it says of reasons and notes is at most a second old, and that
// the device is lost or the runtime closed it says at once. A nil Runtime is closed.
func (r *Runtime) Health() core.Health {
	if r == nil {
		return core.Health{State: names.HealthClosed, Reason: "there is no runtime: look at the error of Open"}
	}
	return r.health.Health()
}

// HealthReport is the answer of [Runtime.HealthHandler] and
// [Runtime.ReadyHandler], as JSON.
type HealthReport struct {
	// State is that of [core.Health], Reason and Reasons, its Signs, why it is not ok.
	// Reasons is shared and must not be changed.
	State   string            `json:"state"`
	Reason  string            `json:"reason,omitempty"`
	Reasons []core.HealthSign `json:"reasons,omitempty"`
	// Notes are its Notes: what is no reason to be unwell, such as that jobs wait for memory. Notes
	// is shared and must not be changed.
	Notes []core.HealthSign `json:"notes,omitempty"`
	// NotReady is why no requests should be sent here, if the state is not
	// the reason.
	NotReady string `json:"not_ready,omitempty"`
	// Device and Stack say what the runtime runs on. UUID is the device's in
	// every process; empty if the driver cannot say.
	Device string `json:"device"`
	UUID   string `json:"uuid,omitempty"`
	Stack  string `json:"stack"`
	// Findings counts the memory bugs that were seen, by kind.
	Findings map[core.FindingKind]uint64 `json:"findings,omitempty"`
}

// HealthReport is the runtime's health for people and machines. It makes no
// device call.
func (r *Runtime) HealthReport() HealthReport {
	h := r.Health()
	if r == nil {
		return HealthReport{State: h.State, Reason: h.Reason, Stack: r.String()}
	}
	return HealthReport{State: h.State, Reason: h.Reason, Reasons: h.Signs, Notes: h.Notes, Device: r.device.String(),
		UUID: r.device.UUID, Stack: r.String(),
		Findings: r.findings.Counts()}
}

// HealthHandler answers whether the process is worth keeping, with a
// [HealthReport]: 503 if the device is lost, which only a new process gets
// back, and 200 otherwise. It is for an orchestrator's liveness probe, usually
// on /healthz. It makes no device call.
func (r *Runtime) HealthHandler() http.Handler {
	return operators.Probe(r.alive)
}

func (r *Runtime) alive() (report any, good bool) {
	h := r.HealthReport()
	return h, h.State != names.HealthPoisoned
}

// ReadyHandler answers whether to send requests here, with a [HealthReport]:
// 503 if the runtime is closed or its device lost, or one of the checks
// returns an error, such as that of a service that is stopping; 200
// otherwise, degraded or not. It is for a readiness probe, usually on /readyz.
// It makes no device call; the checks are called for each request and should
// not block.
func (r *Runtime) ReadyHandler(checks ...func() error) http.Handler {
	return r.ready(checks)
}

func (r *Runtime) ready(checks []func() error) operators.Probe {
	return func() (any, bool) {
		report := r.HealthReport()
		for _, check := range checks {
			if err := check(); err != nil {
				report.NotReady = legible.Kept(err).Error()
				return report, false
			}
		}
		return report, report.State == names.HealthOK || report.State == names.HealthDegraded
	}
}

func (r *Runtime) newHealthWatch(cfg Config) *health.Watch {
	return health.New(health.Config{Hold: cfg.HealthHold, Lost: cfg.TelemetryLost, OnHealth: cfg.OnHealth, Logger: cfg.Findings.Logger,
		Read: r.readHealth, State: func() core.Health { return r.core.Health() }, OnStorm: r.dumpUponStorm})
}

func (r *Runtime) dumpUponStorm() {
	if r.dumps != nil {
		r.dumps.Trigger(dump.Refusals)
	}
}

// watchHealth is the last step of Open, so that it is told to end first. It is
// waited for last: a callback that hangs must not take the time in which the
// device is given back.
func (r *Runtime) watchHealth(Config) error {
	r.health.Start()
	r.undo = slices.Insert(r.undo, 0, deadline.AtLeastAMoment(r.health.Wait))
	r.onClose(func(context.Context) error { r.health.Stop(); return nil })
	return nil
}

// readHealth reads the numbers. It makes no device call.
func (r *Runtime) readHealth() health.Reading {
	return health.Sources{Stats: r.Stats(), Guard: r.guard.GuardStats(), Streams: r.streams.Stats(), Operations: r.observer.Operations(),
		Findings: r.findings, Drift: r.DeviceMemory().Drift, Exhausted: r.exhausted(), Lost: r.lostTelemetry(),
		JobsWaiting: r.Waiting(), JobsLearning: r.Learning()}.Reading()
}

func (r *Runtime) lostTelemetry() uint64 {
	lost := r.log.Dropped() + usercode.Panics() - r.panicked
	if r.incidents != nil {
		st := r.incidents.Stats()
		lost += st.Dropped + st.Failed + r.dumps.Failures()
	}
	return lost
}
