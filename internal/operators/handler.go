// Package operators is what operators look at, over HTTP: metrics, probes, the live
// view, the history, the guard's switch, incident files and profiles, of one
// device or several. It knows a runtime as a [Device] only; the root package fills
// that in, and documents the paths.
//
// What shows something is open to any client that can connect and names the process by what
// is no other site's name. What changes something, the guard's setting or the files
// of a dump, is taken from this machine alone.
package operators

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/legible"
	"github.com/fencepost-gpu/fencepost/telemetry/liveview"
)

// Device is what operators see of a runtime. Nothing of it makes a device call.
type Device struct {
	Ordinal   int
	Collector prometheus.Collector
	// Health and Ready answer the probes, History and Profile as their packages say.
	Health, Ready    Probe
	History, Profile http.Handler
	Live             liveview.Source
	Guard            Guard
	Files            Files
}

// Files is the folder of a device's incidents and dumps.
type Files struct {
	// Folder is empty where there is none.
	Folder string
	// MaxDump is how many bytes a file of a dump has at most.
	MaxDump int64
	// Dump makes one, and returns the paths of its files.
	Dump func(context.Context) ([]string, error)
}

// Config says what [New] serves.
type Config struct {
	Devices []Device
	// Gatherer is what /metrics serves. Nil means the devices' metrics alone.
	Gatherer prometheus.Gatherer
	// Hosts are further names by which the handler may be addressed.
	Hosts []string
	// SwitchGuard, Incidents and GoProfiles serve what is not served otherwise.
	SwitchGuard, Incidents, GoProfiles bool
}

// New returns the handler of everything. No device, or two of one ordinal, are a
// [core.InvalidRequestError].
func New(cfg Config) (http.Handler, error) {
	all := devices(cfg.Devices)
	if err := all.check(); err != nil {
		return nil, err
	}
	gatherer, err := metricsOf(cfg)
	if err != nil {
		return nil, err
	}
	view, err := newView(cfg)
	if err != nil {
		return nil, err
	}
	var health, ready []Probe
	for _, d := range all {
		health, ready = append(health, d.Health), append(ready, d.Ready)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	mux.Handle("/healthz", worst(health))
	mux.Handle("/readyz", worst(ready))
	mux.Handle("/debug/gpumem/", http.StripPrefix("/debug/gpumem", view))
	mux.Handle("/debug/gpumem/history", all.choose(func(d *Device) http.Handler { return d.History }))
	mux.Handle("/debug/gpumem/guard", all.choose(func(d *Device) http.Handler {
		shown := d.Guard
		if !cfg.SwitchGuard {
			shown.Switch = nil
		}
		return shown
	}))
	serveFiles(mux, all, cfg.Incidents)
	mux.Handle("/debug/pprof/gpumem", all.choose(func(d *Device) http.Handler { return d.Profile }))
	if cfg.GoProfiles {
		mux.Handle("/debug/pprof/", goProfiles())
	}
	return checkHost(cfg.Hosts, mux), nil
}

func newView(cfg Config) (*liveview.View, error) {
	view := liveview.Config{Links: []liveview.Link{
		{Text: "Metrics", Href: "../../metrics"}, {Text: "Perfetto", Href: "history?format=perfetto"},
		{Text: "PyTorch", Href: "history?format=pytorch"}, {Text: "Log", Href: "history?format=jsonl"}, {Text: "pprof", Href: "../pprof/gpumem?debug=1"}}}
	if cfg.GoProfiles {
		view.Links = append(view.Links, liveview.Link{Text: "Go profiles", Href: "../pprof/"})
	}
	for _, d := range cfg.Devices {
		view.Devices = append(view.Devices, d.Live)
	}
	return liveview.New(view)
}

func metricsOf(cfg Config) (prometheus.Gatherer, error) {
	if cfg.Gatherer != nil {
		return cfg.Gatherer, nil
	}
	registry := prometheus.NewRegistry()
	for _, d := range cfg.Devices {
		if err := registry.Register(d.Collector); err != nil {
			return nil, fmt.Errorf("registering the metrics of device %d: %w", d.Ordinal, err)
		}
	}
	return registry, nil
}

// devices are of different ordinals.
type devices []Device

func badRuntimes(reason string) error {
	return &core.InvalidRequestError{Op: "fencepost.NewHandler", Field: "Runtimes", Reason: reason}
}

func (all devices) check() error {
	if len(all) == 0 {
		return badRuntimes("none: pass at least one")
	}
	seen := map[int]bool{}
	for _, d := range all {
		if seen[d.Ordinal] {
			return badRuntimes(fmt.Sprintf("two for device %d", d.Ordinal))
		}
		seen[d.Ordinal] = true
	}
	return nil
}

// choose serves the handler of the device that the query names. It may be left
// out if there is one only.
func (all devices) choose(of func(*Device) http.Handler) http.Handler {
	handlers := map[string]http.Handler{}
	var ordinals []int
	for i := range all {
		d := &all[i]
		handlers[strconv.Itoa(d.Ordinal)] = of(d)
		ordinals = append(ordinals, d.Ordinal)
	}
	if len(all) == 1 {
		handlers[""] = handlers[strconv.Itoa(ordinals[0])]
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		query := req.URL.Query()
		h, ok := handlers[query.Get("device")]
		if !ok {
			http.Error(w, fmt.Sprintf("device %s: say ?device= and one of %v", legible.Value(query.Get("device")), ordinals),
				http.StatusBadRequest)
			return
		}
		if query.Has("device") { // it is said
			query.Del("device")
			req = req.Clone(req.Context())
			req.URL.RawQuery = query.Encode()
		}
		h.ServeHTTP(w, req)
	})
}

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
