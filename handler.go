package fencepost

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fencepost-gpu/fencepost/telemetry/liveview"
)

// HandlerConfig says what [NewHandler] serves.
type HandlerConfig struct {
	// Runtimes are the devices, of different ordinals. At least one is
	// required. They stay the caller's to close.
	Runtimes []*Runtime
	// Gatherer is what /metrics serves: the registry of a service that has
	// registered the runtimes' collectors beside its own. Nil means the
	// metrics of the runtimes alone.
	Gatherer prometheus.Gatherer
	// Ready are checks that /readyz makes besides; see [Runtime.ReadyHandler].
	Ready []func() error
	// SwitchGuard lets the debug guard be switched by POST, from this machine
	// and as [Runtime.GuardHandler] says. Without it nothing that the handler
	// serves changes anything.
	SwitchGuard bool
	// Incidents serves the files of Config.Incidents, by number and as downloads,
	// and makes a dump upon a POST from this machine, as GuardHandler says, once a
	// minute. Without it those paths are not there.
	Incidents bool
	// GoProfiles serves the Go runtime's profiles beside that of the GPU's
	// memory, below /debug/pprof/: as package net/http/pprof does, but for the
	// command line and the look-up of symbols. Whoever may ask for them can
	// slow the program down, and reads what it does.
	GoProfiles bool
}

// NewHandler returns everything that a service shows of its GPU memory as one
// handler, to be mounted at "/" of the port for operators, behind the service's
// own routes:
//
//	/metrics               for Prometheus: text, OpenMetrics (exemplars), protobuf (native histograms)
//	/healthz, /readyz      for probes; of several devices the worst
//	/debug/gpumem/         the live view, a page; see package liveview
//	/debug/gpumem/state    its numbers as JSON; /debug/gpumem/past what they were before, /debug/gpumem/blocks the blocks of a stretch of addresses
//	/debug/gpumem/history  the newest operations; ?format=jsonl, perfetto or pytorch
//	/debug/gpumem/guard    how the debug guard is set, and its switch if SwitchGuard is set
//	/debug/gpumem/incidents, /debug/gpumem/dump
//	                       if Incidents is set: the files of Config.Incidents, and what makes a dump
//	/debug/pprof/gpumem    the memory by Go call stack, for go tool pprof
//	/debug/pprof/          the Go runtime's profiles if GoProfiles is set: profile, trace, heap, goroutine and so on
//
// With several devices ?device=N says of which; /metrics has all. What is
// mounted for a part of the paths serves that part. Nothing makes a device call.
//
// It shows the program's tags, functions and addresses: serve it where
// net/http/pprof is served, on a loopback address by default. No runtime, one
// that is nil, or two of one ordinal are a [core.InvalidRequestError].
func NewHandler(cfg HandlerConfig) (http.Handler, error) {
	devices, err := byOrdinal(cfg.Runtimes)
	if err != nil {
		return nil, err
	}
	gatherer := cfg.Gatherer
	if gatherer == nil {
		if gatherer, err = metricsOf(cfg.Runtimes); err != nil {
			return nil, err
		}
	}
	view, err := newView(cfg)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	mux.Handle("/healthz", worst(devices.each((*Runtime).HealthHandler)))
	mux.Handle("/readyz", worst(devices.each(func(r *Runtime) http.Handler { return r.ReadyHandler(cfg.Ready...) })))
	mux.Handle("/debug/gpumem/", http.StripPrefix("/debug/gpumem", view))
	mux.Handle("/debug/gpumem/history", devices.choose((*Runtime).HistoryHandler))
	mux.Handle("/debug/gpumem/guard", devices.choose(guardOf(cfg.SwitchGuard)))
	serveIncidents(mux, devices, cfg.Incidents)
	mux.Handle("/debug/pprof/gpumem", devices.choose((*Runtime).ProfileHandler))
	if cfg.GoProfiles {
		mux.Handle("/debug/pprof/", goProfiles())
	}
	return mux, nil
}

// guardOf is the guard's endpoint, or the half of it that shows.
func guardOf(switched bool) func(*Runtime) http.Handler {
	return func(r *Runtime) http.Handler {
		h := r.GuardHandler()
		if switched {
			return h
		}
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.Method != http.MethodGet && req.Method != http.MethodHead {
				w.Header().Set("Allow", "GET, HEAD")
				http.Error(w, req.Method+": the guard is not switched here: the program would have to set HandlerConfig.SwitchGuard", http.StatusMethodNotAllowed)
				return
			}
			h.ServeHTTP(w, req)
		})
	}
}

func newView(cfg HandlerConfig) (*liveview.View, error) {
	view := liveview.Config{Links: []liveview.Link{
		{Text: "Metrics", Href: "../../metrics"}, {Text: "Perfetto", Href: "history?format=perfetto"},
		{Text: "PyTorch", Href: "history?format=pytorch"}, {Text: "Log", Href: "history?format=jsonl"}, {Text: "pprof", Href: "../pprof/gpumem?debug=1"}}}
	if cfg.GoProfiles {
		view.Links = append(view.Links, liveview.Link{Text: "Go profiles", Href: "../pprof/"})
	}
	for _, r := range cfg.Runtimes {
		view.Devices = append(view.Devices, r.liveSource(cfg))
	}
	return liveview.New(view)
}

func metricsOf(runtimes []*Runtime) (prometheus.Gatherer, error) {
	registry := prometheus.NewRegistry()
	for _, r := range runtimes {
		if err := registry.Register(r.Collector()); err != nil {
			return nil, fmt.Errorf("registering the metrics of device %d: %w", r.Ordinal(), err)
		}
	}
	return registry, nil
}
