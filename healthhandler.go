package fencepost

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// HealthReport is the answer of [Runtime.HealthHandler] and
// [Runtime.ReadyHandler], as JSON.
type HealthReport struct {
	// State is that of [core.Health], Reason and Reasons why it is not ok.
	State   string       `json:"state"`
	Reason  string       `json:"reason,omitempty"`
	Reasons []HealthSign `json:"reasons,omitempty"`
	// NotReady is why no requests should be sent here, if the state is not
	// the reason.
	NotReady string `json:"not_ready,omitempty"`
	// Device and Stack say what the runtime runs on. UUID is the device's in
	// every process; empty if the driver cannot say.
	Device string `json:"device"`
	UUID   string `json:"uuid,omitempty"`
	Stack  string `json:"stack"`
	// Findings counts the memory bugs that were seen, by kind.
	Findings map[string]uint64 `json:"findings,omitempty"`
}

// HealthSign is a [core.HealthSign] as JSON.
type HealthSign struct {
	Reason string    `json:"reason"`
	Text   string    `json:"text"`
	Since  time.Time `json:"since"`
}

// HealthReport is the runtime's health for people and machines. It makes no
// device call.
func (r *Runtime) HealthReport() HealthReport {
	h := r.Health()
	report := HealthReport{State: h.State.String(), Reason: h.Reason, Device: r.device.String(), UUID: r.device.UUID, Stack: r.String(), Findings: map[string]uint64{}}
	for _, s := range h.Signs {
		report.Reasons = append(report.Reasons, HealthSign{Reason: string(s.Reason), Text: s.Text, Since: s.Since})
	}
	for kind, n := range r.findings.Counts() {
		report.Findings[string(kind)] = n
	}
	return report
}

// HealthHandler answers whether the process is worth keeping, with a
// [HealthReport]: 503 if the device is lost, which only a new process gets
// back, and 200 otherwise. It is for an orchestrator's liveness probe, usually
// on /healthz. It makes no device call.
func (r *Runtime) HealthHandler() http.Handler {
	return healthHandler(func() (HealthReport, bool) {
		report := r.HealthReport()
		return report, report.State != core.HealthPoisoned.String()
	})
}

// ReadyHandler answers whether to send requests here, with a [HealthReport]:
// 503 if the runtime is closed or its device lost, or one of the checks
// returns an error, such as that of a service that is stopping; 200
// otherwise, degraded or not. It is for a readiness probe, usually on /readyz.
// It makes no device call; the checks are called for each request and should
// not block.
func (r *Runtime) ReadyHandler(checks ...func() error) http.Handler {
	return healthHandler(func() (HealthReport, bool) {
		report := r.HealthReport()
		for _, check := range checks {
			if err := check(); err != nil {
				report.NotReady = err.Error()
				return report, false
			}
		}
		return report, report.State == core.HealthOK.String() || report.State == core.HealthDegraded.String()
	})
}

// healthHandler answers with a report and whether it is a good one.
type healthHandler func() (HealthReport, bool)

// ServeHTTP answers one request.
func (h healthHandler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, req.Method+": use GET", http.StatusMethodNotAllowed)
		return
	}
	report, good := h()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if !good {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(report) //nolint:errchkjson // the client went away
}
