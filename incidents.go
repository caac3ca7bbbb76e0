package fencepost

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
)

// How many records of the history go with an incident: of the victim itself,
// and of the streams concerned.
const (
	victimRecords = 16
	streamRecords = 64
)

// openIncidents is the first step of Open and so undone last: closing the rest
// makes findings too.
func (r *Runtime) openIncidents(cfg Config) error {
	if cfg.Incidents == "" {
		return nil
	}
	settings := cfg.IncidentConfig
	settings.Folder, settings.Around = cfg.Incidents, r.around
	w, err := incident.NewWriter(settings)
	if e, ok := errors.AsType[*core.InvalidRequestError](err); ok {
		return invalid("IncidentConfig", e.Field+": "+e.Reason)
	}
	if err != nil {
		return invalid("Incidents", fmt.Sprintf("%v: name a folder that this process may write to", err))
	}
	r.incidents = w
	r.onClose(deadline.AtLeastAMoment(w.Close))
	return nil
}

func (r *Runtime) incidentStats() telemetry.IncidentStats {
	st := r.incidents.Stats()
	return telemetry.IncidentStats{Written: st.Written, Omitted: st.Omitted, Dropped: st.Dropped, Failed: st.Failed, Removed: st.Removed}
}

// around is what surrounds a finding, as far as it is known: the device at once,
// and then what takes locks that whoever reports the finding may hold. It makes no
// device call.
func (r *Runtime) around(ctx context.Context, f core.Finding) iter.Seq[incident.Surroundings] {
	return func(yield func(incident.Surroundings) bool) {
		if !r.built.Load() {
			yield(incident.Surroundings{Incomplete: "the runtime was not open yet"})
			return
		}
		s := incident.Surroundings{
			Device: incident.Device{Kind: r.device.Kind, Ordinal: r.device.Ordinal, Name: r.device.Name, UUID: r.device.UUID, PCIBusID: r.device.PCIBusID},
			Stack:  r.String(),
		}
		parts := []struct {
			name string
			ask  func()
		}{
			{"history", func() { s.History = r.historyOf(f) }},
			{"memory", func() { s.Memory = incident.FromStats(r.Stats()) }},
			{"guard", func() {
				status := r.GuardStatus()
				s.Guard = incident.Guard{Mode: status.Setting, Policy: status.Policy, HuntTags: status.HuntTags, Numbers: status.Numbers}
			}},
		}
		missing := []string{"history", "memory", "guard"}
		for i, part := range parts {
			s.Incomplete = strings.Join(missing[i:], ", ") + ": not known yet"
			if !yield(s) || ctx.Err() != nil {
				return
			}
			part.ask()
		}
		s.Incomplete = ""
		yield(s)
	}
}

// historyOf is the newest records, up to the finding, of the victim and of the
// streams of its uses and suspects, oldest first.
func (r *Runtime) historyOf(f core.Finding) []incident.Event {
	var streams []core.StreamID
	if f.Victim.ID.Generation != 0 {
		streams = append(streams, f.Victim.ID.AllocStream)
	}
	for _, u := range slices.Concat(f.Suspects, f.Uses) {
		streams = append(streams, u.Stream)
	}
	var events []incident.Event
	ofVictim, ofStreams := 0, 0
	for _, rec := range slices.Backward(r.ring.Snapshot()) {
		e := &rec.Event
		isVictim := e.Block.Generation != 0 && e.Block.Generation == f.Victim.ID.Generation
		switch {
		case e.Time.After(f.Time):
			continue
		case isVictim && ofVictim < victimRecords:
			ofVictim++
		case slices.Contains(streams, e.Stream) && ofStreams < streamRecords:
			ofStreams++
		default:
			continue
		}
		events = append(events, incident.FromEvent(*e))
	}
	slices.Reverse(events)
	return events
}
