package operators

import (
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"strconv"
	"time"

	"github.com/fencepost-gpu/fencepost/internal/legible"
)

// The paths below /debug/pprof/ that take a time, and how many seconds that is
// if the request does not say.
const (
	cpuSeconds   = 30
	traceSeconds = 1
	maxSeconds   = 3600
)

var errSeconds = errors.New("seconds: only profile and trace take time; compare two of this one with go tool pprof -base")

// goProfiles serves the Go runtime's profiles as package net/http/pprof does.
// That package is not imported, because it puts itself on
// [http.DefaultServeMux] of every program that has it, asked or not.
func goProfiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/{$}", listProfiles)
	mux.HandleFunc("GET /debug/pprof/{name}", namedProfile)
	mux.HandleFunc("GET /debug/pprof/profile", func(w http.ResponseWriter, req *http.Request) {
		record(w, req, "profile", cpuSeconds, pprof.StartCPUProfile, pprof.StopCPUProfile)
	})
	mux.HandleFunc("GET /debug/pprof/trace", func(w http.ResponseWriter, req *http.Request) {
		record(w, req, "trace", traceSeconds, trace.Start, trace.Stop)
	})
	return mux
}

func listProfiles(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	fmt.Fprintf(w, "<!DOCTYPE html><title>Profiles</title>\n<table>\n"+
		"<tr><td></td><td><a href=\"profile\">profile</a>: CPU, of %d seconds or ?seconds=</td></tr>\n"+
		"<tr><td></td><td><a href=\"trace\">trace</a>: execution, of %d second or ?seconds=</td></tr>\n"+
		"<tr><td></td><td><a href=\"gpumem?debug=1\">gpumem</a>: GPU memory</td></tr>\n", cpuSeconds, traceSeconds)
	for _, p := range pprof.Profiles() {
		name := html.EscapeString(p.Name())
		fmt.Fprintf(w, "<tr><td>%d</td><td><a href=\"%s?debug=1\">%s</a></td></tr>\n", p.Count(), name, name)
	}
	fmt.Fprint(w, "</table>\n")
}

// namedProfile answers with a profile as it is now; debug=1 makes it text, gc=1
// collects garbage before that of the heap.
func namedProfile(w http.ResponseWriter, req *http.Request) {
	p := pprof.Lookup(req.PathValue("name"))
	if p == nil {
		http.Error(w, "no profile of that name: /debug/pprof/ lists them", http.StatusNotFound)
		return
	}
	debug, err := whole(req, "debug", 0, 0, 2)
	if err == nil && req.FormValue("seconds") != "" {
		err = errSeconds
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if p.Name() == "heap" && req.FormValue("gc") == "1" {
		runtime.GC()
	}
	if debug > 0 {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
	} else {
		attach(w, p.Name())
	}
	_ = p.WriteTo(w, debug) // the client went away
}

// record lets start write to the client for the seconds asked for, or until the
// client has gone.
func record(w http.ResponseWriter, req *http.Request, name string, seconds int, start func(io.Writer) error, stop func()) {
	seconds, err := whole(req, "seconds", seconds, 1, maxSeconds)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	length := time.Duration(seconds) * time.Second
	if server, ok := req.Context().Value(http.ServerContextKey).(*http.Server); ok && server.WriteTimeout > 0 {
		// A connection whose time cannot be set has the server's, as before.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(length + server.WriteTimeout))
	}
	attach(w, name)
	if err := start(w); err != nil {
		w.Header().Del("Content-Disposition")
		http.Error(w, fmt.Sprintf("%s: %v: one at a time", name, err), http.StatusServiceUnavailable)
		return
	}
	defer stop()
	select {
	case <-time.After(length):
	case <-req.Context().Done():
	}
}

// whole reads a parameter that is between least and most, or def if it is not
// there.
func whole(req *http.Request, name string, def, least, most int) (int, error) {
	text := req.FormValue(name)
	if text == "" {
		return def, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%s=%s: say a whole number from %d to %d", name, legible.Value(text), least, most)
	}
	return n, nil
}

// attach makes the answer a file.
func attach(w http.ResponseWriter, name string) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", name))
	w.Header().Set("X-Content-Type-Options", "nosniff")
}
