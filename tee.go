package fencepost

import (
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/dump"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
)

// tee passes findings to the incident files, which say where they will be, and
// then to the collection, the watch of health, the caller's function, the dumps,
// and to who stops the process. Of what harmed nothing no file is made: those are
// for what somebody must look into.
type tee struct {
	collection *telemetry.Findings
	health     *healthWatch
	forward    func(core.Finding)
	incidents  *incident.Writer
	dumps      *dump.Writer
	stop       *stopper
}

func (r *Runtime) newTee(cfg Config) tee {
	t := tee{collection: r.findings, health: r.health, forward: cfg.OnFinding, incidents: r.incidents, dumps: r.dumps}
	if cfg.GuardPolicy == PolicyStop {
		t.stop = newStopper(cfg, r.incidents, r.dumps)
	}
	return t
}

func (t tee) Report(f core.Finding) {
	if f.Harmless() {
		t.tell(f)
		return
	}
	if t.stop != nil && stops(f) && t.stop.first() {
		t.stop.take(f, t.tell)
		return // delivered
	}
	if t.incidents != nil {
		f.Incident = t.incidents.Take(f)
	}
	t.tell(f)
	if t.stop != nil && stops(f) {
		t.stop.wait()
	}
	dumpUpon(t.dumps, f)
}

// tell calls what the caller brought, which may block though it must not.
func (t tee) tell(f core.Finding) {
	t.collection.Report(f)
	t.health.Report(f)
	if t.forward != nil {
		t.forward(f)
	}
}
