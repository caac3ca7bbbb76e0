package operators

import (
	"encoding/json"
	"net/http"
)

// Probe is a handler that answers with a report as JSON, and with 503 if it is not
// a good one.
type Probe func() (report any, good bool)

// ServeHTTP answers one request.
func (h Probe) ServeHTTP(w http.ResponseWriter, req *http.Request) {
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
