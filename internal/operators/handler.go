package operators

import (
	"context"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

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
	return mux, nil
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
