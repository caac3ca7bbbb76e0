package fencepost

import (
	"context"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/operators"
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
	served := operators.Config{Gatherer: cfg.Gatherer, SwitchGuard: cfg.SwitchGuard, Incidents: cfg.Incidents, GoProfiles: cfg.GoProfiles}
	for i, r := range cfg.Runtimes {
		if r == nil {
			return nil, &core.InvalidRequestError{Op: "fencepost.NewHandler", Field: "Runtimes", Reason: fmt.Sprintf("number %d is nil: pass open runtimes", i)}
		}
		served.Devices = append(served.Devices, r.shown(cfg))
	}
	return operators.New(served)
}

// shown is what operators see of the runtime.
func (r *Runtime) shown(cfg HandlerConfig) operators.Device {
	d := operators.Device{Ordinal: r.Ordinal(), Collector: r.Collector(), Health: r.HealthHandler(), Ready: r.ReadyHandler(cfg.Ready...),
		History: r.HistoryHandler(), Profile: r.ProfileHandler(), Live: r.liveSource(cfg), Guard: r.guardSwitch()}
	if r.incidents != nil {
		d.Files = operators.Files{Folder: r.incidents.Folder(), MaxDump: r.maxDump, Dump: r.Dump}
	}
	return d
}

// guardSwitch is the guard as operators see it.
func (r *Runtime) guardSwitch() operators.Guard {
	return operators.Guard{
		Status: func() any { return r.GuardStatus() },
		Switch: func(ctx context.Context, c operators.GuardChange) error { return r.SwitchGuard(ctx, GuardChange(c)) },
	}
}

// GuardHandler is an HTTP endpoint that shows the debug guard and switches it.
//
// GET answers with [GuardStatus] as JSON. POST and PUT change what the request
// names, and answer with the status after it: fields mode, sample_bytes and
// hunt_tags, as the JSON of [GuardChange] or as a form or query, where
// hunt_tags may be given several times or with commas (a tag that holds one needs
// JSON), and empty is none. A change that makes no sense is refused with 400 and
// the words to use. One that is not made within 20 seconds, because the device does not answer, is answered
// with 503, and may be made later; one of a runtime that is closed is answered with 503, too.
//
// A change is taken from this machine alone: the peer's address must be a
// loopback address, the Host header a loopback address or localhost (a web page
// that had its name rebound to this machine has another), and a browser must
// not say that the request comes from another site. Everything else is refused
// with 403. Whoever may connect to a loopback port of this machine may switch the
// guard: mount it where that is right.
func (r *Runtime) GuardHandler() http.Handler { return operators.GuardHandler(r.guardSwitch()) }

// liveSource is what the live view shows of the runtime. It makes no device
// call.
func (r *Runtime) liveSource(cfg HandlerConfig) liveview.Source {
	return liveview.Source{
		Name:     r.device.String(),
		UUID:     r.device.UUID,
		Resource: r.Resource(),
		Holders:  r.budget.Holders,
		Past:     r.livePast,
		Health:   r.Health,
		Streams:  r.liveStreams,
		Findings: func() (uint64, []core.Finding) { return r.findings.Total(), r.findings.Recent() },
		Refusals: r.refusals.Newest,
		Files:    cfg.Incidents && r.incidents != nil,
		Guard: func() liveview.Guard {
			s := r.GuardStatus()
			return liveview.Guard{Setting: s.Setting, Policy: s.Policy, HuntTags: s.HuntTags, Numbers: s.Numbers, Switch: cfg.SwitchGuard}
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
	st := r.streams.Stats()
	out := liveview.Streams{Limit: st.Max, Leased: st.Leased, Idle: st.Idle, Adopted: st.Adopted, Waiting: st.Waiting, List: []liveview.Stream{}}
	for _, s := range r.streams.Inspect() {
		out.List = append(out.List, liveStream(s))
	}
	return out
}

func liveStream(s cuda.StreamInfo) liveview.Stream {
	out := liveview.Stream{Number: s.Number, Busy: s.Busy, Capturing: s.Capturing, Seq: s.Seq, Completed: s.Completed, Last: s.Last.Launch,
		OpenLaunches: s.OpenLaunches, PendingFrees: s.PendingFrees, PendingBytes: s.PendingBytes,
		Launches: s.Launches, WaitsQueued: s.WaitsQueued, WaitsElided: s.WaitsElided}
	if s.Default {
		out.Name = core.DefaultStream.String()
	}
	if s.Lease != nil {
		out.Lease, out.Tag, out.Since, out.Where, out.Adopted = uint64(s.Lease.ID), string(s.Lease.Tag), s.Lease.Since, s.Lease.Stack, s.Lease.Adopted
	}
	for _, p := range s.After {
		out.After = append(out.After, liveview.Point(p))
	}
	return out
}
