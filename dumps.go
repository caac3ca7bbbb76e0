package fencepost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/dump"
	"github.com/fencepost-gpu/fencepost/telemetry/history"
)

// openDumps comes before what they are of, and so is undone after it: closing
// that makes findings too.
func (r *Runtime) openDumps(cfg Config) error {
	if cfg.Incidents == "" {
		return nil
	}
	settings := cfg.DumpConfig
	settings.Folder, settings.Source = cfg.Incidents, r.frozenHistory
	w, err := dump.NewWriter(settings)
	if e, ok := errors.AsType[*core.InvalidRequestError](err); ok {
		return invalid("DumpConfig", e.Field+": "+e.Reason)
	}
	if err != nil {
		return invalid("Incidents", fmt.Sprintf("%v: name a folder that this process may write to", err))
	}
	r.dumps, r.maxDump = w, cmp.Or(settings.MaxBytes, dump.DefaultMaxBytes)
	r.onClose(deadline.AtLeastAMoment(w.Close))
	return nil
}

// liveHistory is the history as it is whenever it is asked for.
func (r *Runtime) liveHistory() history.Source {
	return history.Source{Events: r.ring.Events, JSONLines: r.ring.WriteJSON,
		Resources: []core.Resource{r.Resource()}, Findings: r.findings.Recent}
}

// frozenHistory is the history of now, the same in every form.
func (r *Runtime) frozenHistory() (history.Source, error) {
	if !r.built.Load() {
		return history.Source{}, errors.New("the runtime was not open yet")
	}
	s := r.liveHistory().ListNow() // before the records, which then say what changed meanwhile
	records, findings := r.ring.Snapshot(), r.findings.Recent()
	s.Findings = func() []core.Finding { return findings }
	s.Events = func() []core.Event { return logging.Events(records) }
	s.JSONLines = func(w io.Writer) error { return logging.WriteJSON(w, records) }
	return s, nil
}

// HistoryHandler serves what happened before now: the log records in memory,
// in the format that the query's format names, "jsonl" (the default),
// "perfetto" or "pytorch"; see package [history]. It is usually mounted at
// /debug/gpumem/history. It makes no device call.
func (r *Runtime) HistoryHandler() http.Handler { return history.Handler(r.liveHistory()) }

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

func (r *Runtime) dumpCounts() (counts []telemetry.DumpCount) {
	for _, c := range r.dumps.Stats() {
		counts = append(counts, telemetry.DumpCount{Trigger: string(c.Trigger), Outcome: string(c.Outcome), Count: c.Count})
	}
	return counts
}
