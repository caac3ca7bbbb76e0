package history

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// patience is how long a client may take over a history while others wait.
const patience = time.Minute

// Handler serves the history of s in the format that the query's format
// names: "jsonl", which is the default, "perfetto" or "pytorch". It is usually
// mounted at /debug/gpumem/history. Only GET and HEAD are answered. Requests
// are answered one at a time, so that many of them take no more memory than
// one; who waits may leave, and who does not read for a minute is cut off. It is
// safe for concurrent use.
//
// It changes nothing, but it shows tags, names of launches and addresses: who
// may reach it is the mount's to say.
func Handler(s Source) http.Handler {
	turn := make(chan struct{}, 1)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, turn, patience) })
}

// files are how each format is sent.
var files = map[Format]struct{ contentType, name string }{
	JSONLines: {"application/x-ndjson", "gpumem-history.jsonl"},
	Perfetto:  {"application/json", "gpumem-history.trace.json"},
	PyTorch:   {"application/octet-stream", "gpumem-history.pickle"},
}

// serve answers a request when turn, which is full while somebody is answered, has
// room for it.
func (s Source) serve(w http.ResponseWriter, r *http.Request, turn chan struct{}, patience time.Duration) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "use GET", http.StatusMethodNotAllowed)
		return
	}
	format := JSONLines
	if text := r.FormValue("format"); text != "" {
		var err error
		if format, err = ParseFormat(text); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-r.Context().Done():
		return
	}
	write, err := s.prepare(format)
	switch {
	case errors.Is(err, ErrUnavailable):
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", files[format].contentType)
	w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", files[format].name))
	if r.Method != http.MethodGet {
		return
	}
	connection := http.NewResponseController(w)
	if connection.SetWriteDeadline(time.Now().Add(patience)) == nil {
		defer func() { _ = connection.SetWriteDeadline(time.Time{}) }() // the next request has its own
	}
	_ = write(w) // the client went away
}
