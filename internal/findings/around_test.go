package findings

import (
	"context"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
)

// The device is known at once, whatever is held; each part that is not known
// is named, until the last says all.
func TestWhatSurroundsAFindingIsToldStepByStep(t *testing.T) {
	now := time.Now()
	f := core.Finding{Kind: names.FindingStaleHandle, Victim: core.Block{ID: core.BlockID{Generation: 5}, Tag: "victim"}, Time: now}
	around := Around{Device: incident.Device{Kind: "sim"}, Stack: "debugguard(async(sim:0))",
		Records: func() logging.Records {
			var records logging.Records
			for _, at := range []time.Time{now.Add(-time.Second), now.Add(time.Second)} { // and one that came after the finding
				records = append(records, logging.Record{Event: oplog.Event{Time: at, Op: oplog.OpAllocate, Block: core.BlockID{Generation: 5}}})
			}
			return records
		},
		Memory: func() core.Stats { return core.Stats{Allocations: 1} },
		Guard:  func() incident.Guard { return incident.Guard{Mode: "ledger"} },
	}
	var missing []string
	var last incident.Surroundings
	for s := range around.Of(t.Context(), f) {
		if s.Device != around.Device || s.Stack != around.Stack {
			t.Errorf("a step without the device: %+v", s)
		}
		missing, last = append(missing, s.Incomplete), s
	}
	if len(missing) != 4 || missing[0] != "history, memory, guard: not known in time" || missing[2] != "guard: not known in time" || missing[3] != "" {
		t.Errorf("the steps say %q is missing", missing)
	}
	if last.Guard.Mode != "ledger" || last.Memory.Allocations != 1 || len(last.History) != 1 {
		t.Errorf("the last is %+v", last)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	steps := 0
	for range around.Of(ended, f) {
		steps++
	}
	if steps != 1 {
		t.Errorf("%d steps though nobody waits", steps)
	}
}

// However much was done on the victim's stream since, the job that had it is told of.
func TestAFindingIsSurroundedByTheVictimsJob(t *testing.T) {
	now := time.Now()
	records := logging.Records{
		{Event: oplog.Event{Time: now, Op: oplog.OpJob, Stream: 3, Tag: "index.build", Bytes: 4096, Job: &core.JobAccount{}}},
		{Event: oplog.Event{Time: now, Op: oplog.OpJob, Stream: 4, Tag: "other", Job: &core.JobAccount{}}},
	}
	for range 2 * streamRecords {
		records = append(records, logging.Record{Event: oplog.Event{Time: now, Op: oplog.OpReap, Stream: 3}})
	}
	got := historyOf(core.Finding{Victim: core.Block{ID: core.BlockID{Generation: 5, AllocStream: 3}}, Time: now}, records)
	if len(got) != streamRecords+1 || got[0].Op != "job" || got[0].Tag != "index.build" || got[0].Bytes != 4096 {
		t.Errorf("%d records, the first %+v", len(got), got[0])
	}
}
