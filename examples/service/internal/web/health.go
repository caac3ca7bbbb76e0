package web

import (
	"net/http"

	"github.com/fencepost-gpu/fencepost/examples/service/internal/api"
)

// health says whether the process is of any use: a lost device comes back
// with a new process only.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	s.writeHealth(w, s.unhealthy())
}

// ready says whether to send requests here.
func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	reason := s.unhealthy()
	if reason == "" && s.stopping.Load() {
		reason = ErrStopping.Error()
	}
	s.writeHealth(w, reason)
}

func (s *Server) unhealthy() string {
	if state := s.rt.Health(); !state.OK {
		return state.Reason
	}
	return ""
}

func (s *Server) writeHealth(w http.ResponseWriter, reason string) {
	h := api.Health{Status: "ok", Device: s.rt.DeviceChoice().String(), Stack: s.rt.String(), Findings: map[string]uint64{}}
	for kind, n := range s.rt.Findings().Counts() {
		h.Findings[string(kind)] = n
	}
	status := http.StatusOK
	if reason != "" {
		h.Status, h.Reason, status = "unavailable", reason, http.StatusServiceUnavailable
	}
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, status, h)
}
