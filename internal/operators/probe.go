package operators

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

// Probe is a handler that answers with a report as JSON, and with 503 if it is not
// a good one.
type Probe func() (report any, good bool)

// ServeHTTP answers one request.
func (h Probe) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if !allowed(w, req, "use GET", http.MethodGet, http.MethodHead) {
		return
	}
	report, good := h()
	status := http.StatusOK
	if !good {
		status = http.StatusServiceUnavailable
	}
	answer(w, status, report)
}

// worst is good if all are, with the reports of all.
func worst(probes []Probe) Probe {
	if len(probes) == 1 {
		return probes[0]
	}
	return func() (any, bool) {
		reports, allGood := make([]any, len(probes)), true
		for i, probe := range probes {
			report, good := probe()
			reports[i], allGood = report, allGood && good
		}
		return reports, allGood
	}
}

// allowed refuses a request of another method, with what to do.
func allowed(w http.ResponseWriter, req *http.Request, advice string, methods ...string) bool {
	if slices.Contains(methods, req.Method) {
		return true
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	http.Error(w, req.Method+": "+advice, http.StatusMethodNotAllowed)
	return false
}

// answer answers with what is so now, as JSON.
func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) //nolint:errchkjson // the client went away
}
