package fencepost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/operators"
	"github.com/fencepost-gpu/fencepost/telemetry/dump"
	"github.com/fencepost-gpu/fencepost/telemetry/history"
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
	// command line and the look-up of symbols. Any client that may ask for them can
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
//	/debug/gpumem/state    its numbers as JSON; /debug/gpumem/past what they were before, /debug/gpumem/blocks the blocks of a stretch of addresses, /debug/gpumem/timeline what the device did
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
// net/http/pprof is served, on a loopback address by default. A request whose Host
// header could be another site's name is refused with 403, see Config.Hosts. No runtime, one
// that is nil, or two of one ordinal are a [core.InvalidRequestError].
func NewHandler(cfg HandlerConfig) (http.Handler, error) {
	served := operators.Config{Gatherer: cfg.Gatherer, SwitchGuard: cfg.SwitchGuard, Incidents: cfg.Incidents, GoProfiles: cfg.GoProfiles}
	for i, r := range cfg.Runtimes {
		if r == nil {
			return nil, &core.InvalidRequestError{Op: "fencepost.NewHandler", Field: "Runtimes", Reason: fmt.Sprintf("number %d is nil: pass open runtimes", i)}
		}
		served.Devices = append(served.Devices, cfg.device(r))
		served.Hosts = append(served.Hosts, r.hosts...)
	}
	return operators.New(served)
}

// device is what operators see of a runtime.
func (cfg HandlerConfig) device(r *Runtime) operators.Device {
	d := operators.Device{Ordinal: r.Ordinal(), Collector: r.Collector(), Health: r.alive, Ready: r.ready(cfg.Ready),
		History: r.HistoryHandler(), Profile: r.ProfileHandler(), Live: cfg.liveSource(r), Guard: r.guardSwitch()}
	if r.incidents != nil {
		d.Files = operators.Files{Folder: r.incidents.Folder(), MaxDump: r.maxDump, Dump: r.Dump}
	}
	return d
}

// liveSource is what the live view shows of a runtime. It makes no device call.
func (cfg HandlerConfig) liveSource(r *Runtime) liveview.Source {
	return liveview.Source{
		Name:     r.device.String(),
		UUID:     r.device.UUID,
		Resource: r.core.Resource(),
		Holders:  r.budget.Holders,
		Past:     r.livePast,
		Health:   r.Health,
		Streams:  r.liveStreams,
		Jobs:     func() liveview.Jobs { return liveview.Jobs{Waiting: r.Waiting(), Learning: r.Learning()} },
		Findings: func() (uint64, []core.Finding) { return r.findings.Total(), r.findings.Recent() },
		Refusals: r.refusals.Newest,
		Device:   func() []oplog.Event { return r.deviceWork.events(r.Ordinal()) },
		Files:    cfg.Incidents && r.incidents != nil,
		Guard: func() liveview.Guard {
			s := r.GuardStatus()
			return liveview.Guard{Setting: string(s.Setting), Policy: string(s.Policy), HuntTags: s.HuntTags, Numbers: s.Numbers, Switch: cfg.SwitchGuard}
		},
	}
}

// livePast is what the log in memory and the guard remember.
func (r *Runtime) livePast() liveview.Past {
	p := liveview.Past{OwnTag: debugguard.CanaryTag, Releases: r.logsReleases}
	p.Events = r.ring.Events()
	p.EventsSince = r.ring.Since() // after them: what was given up meanwhile is not there
	stays, since := r.guard.Stays()
	p.StaysSince = since
	for _, s := range stays {
		p.Stays = append(p.Stays, liveview.Stay(s))
	}
	return p
}

func (r *Runtime) liveStreams() liveview.Streams {
	return liveview.Streams{Stats: r.streams.Stats(), List: r.streams.Inspect()}
}

// liveHistory is the history as it is whenever it is asked for.
func (r *Runtime) liveHistory() history.Source {
	return history.Source{Events: func() []oplog.Event { return r.historyRecords().Events() }, JSONLines: func(w io.Writer) error { return r.historyRecords().WriteJSON(w) },
		Resources: []core.Resource{r.core.Resource()}, Findings: r.findings.Recent}
}

// frozenHistory is the history of now, the same in every form.
func (r *Runtime) frozenHistory() (history.Source, error) {
	if !r.built.Load() {
		return history.Source{}, errors.New("the runtime was not open yet")
	}
	s := r.liveHistory().ListNow() // before the records, which then say what changed meanwhile
	records, findings := r.historyRecords(), r.findings.Recent()
	s.Findings = func() []core.Finding { return findings }
	s.Events, s.JSONLines = records.Events, records.WriteJSON
	return s, nil
}

// HistoryHandler serves what happened before now: the log records in memory,
// in the format that the query's format names, "jsonl" (the default),
// "perfetto" or "pytorch"; see package [history]. It is usually mounted at
// /debug/gpumem/history. It makes no device call.
func (r *Runtime) HistoryHandler() http.Handler {
	if r == nil {
		return http.NotFoundHandler()
	}
	return history.Handler(r.liveHistory())
}

// Dump writes the history into the folder of Config.Incidents in every format
// and returns the paths of the files; see package [dump]. It waits for the
// disk until ctx ends, and makes no device call. Without a folder it is a
// [core.InvalidRequestError].
func (r *Runtime) Dump(ctx context.Context) ([]string, error) {
	if r == nil {
		return nil, r.refuseClosed("Dump")
	}
	if r.dumps == nil {
		return nil, &core.InvalidRequestError{Op: "Dump", Field: "Config.Incidents", Reason: "empty: name a folder for dumps there, or in FENCEPOST_INCIDENTS"}
	}
	return r.dumps.Now(ctx, dump.Request)
}
