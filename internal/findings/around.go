package findings

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
)

// How many records of the history go with an incident: of the victim itself,
// and of the streams concerned.
const (
	victimRecords = 16
	streamRecords = 64
)

// Around is who knows what surrounds a finding. No function makes a device call.
type Around struct {
	// Device and Stack are known at once.
	Device incident.Device
	Stack  string
	// Records, Memory and Guard take locks that the reporter of the finding may hold.
	Records func() logging.Records
	Memory  func() core.Stats
	Guard   func() incident.Guard
}

// Of is what surrounds a finding, each time as far as it is known: what takes locks
// comes last.
func (a Around) Of(ctx context.Context, f core.Finding) iter.Seq[incident.Surroundings] {
	return func(yield func(incident.Surroundings) bool) {
		s := incident.Surroundings{Device: a.Device, Stack: a.Stack}
		missing := []string{"history", "memory", "guard"}
		for i, ask := range []func(){
			func() { s.History = historyOf(f, a.Records()) },
			func() { s.Memory = incident.FromStats(a.Memory()) },
			func() { s.Guard = a.Guard() },
		} {
			s.Incomplete = strings.Join(missing[i:], ", ") + ": not known in time"
			if !yield(s) || ctx.Err() != nil {
				return
			}
			ask()
		}
		s.Incomplete = ""
		yield(s)
	}
}

// historyOf is the newest records, up to the finding, of the victim and of the
// streams of its uses and suspects, oldest first.
func historyOf(f core.Finding, records logging.Records) []incident.Event {
	var streams []core.StreamID
	if f.Victim.ID.Generation != 0 {
		streams = append(streams, f.Victim.ID.AllocStream)
	}
	for _, u := range slices.Concat(f.Suspects, f.Uses) {
		streams = append(streams, u.Stream)
	}
	var events []incident.Event
	ofVictim, ofStreams := 0, 0
	for _, rec := range slices.Backward(records) {
		e := &rec.Event
		isVictim := e.Block.Generation != 0 && e.Block.Generation == f.Victim.ID.Generation
		switch {
		case e.Time.After(f.Time):
			continue
		case isVictim && ofVictim < victimRecords:
			ofVictim++
		case e.Op == oplog.OpJob && slices.Contains(streams, e.Stream): // one for each stream
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
