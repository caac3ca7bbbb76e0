package shown_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
)

func TestAFindingIsAnIncidentFileWithWhatSurroundedIt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "incidents")
	cfg := fencepost.Config{Driver: e2e.Blind(t), Guard: "hunt", Incidents: dir, LogLevel: logging.Uses}
	cfg.GuardConfig.HuntTags = []core.Tag{"hunted"}
	rt := e2e.OpenDirty(t, cfg)
	b := e2e.Overrun(t, rt, "victim")
	e2e.Succeed(t, "flush", rt.Incidents().Flush(t.Context()))
	in := e2e.OnlyIncident(t, rt)
	f := in.Finding
	// A byte of the red zone may happen to be what was written over it.
	if f.Kind != "oob-write" || f.Victim.Tag != "victim" || f.Victim.Generation != uint64(b.ID.Generation) || f.Damage.Offset < 1000 || f.Damage.Offset > 1015 || f.Damage.Seen != 7 || f.Error.Classes[0] != "out_of_bounds" {
		t.Errorf("the finding is %+v", f)
	}
	if !strings.Contains(strings.Join(f.AllocStack, "\n"), "TestAFindingIsAnIncidentFile") || len(f.FreeStack) == 0 || len(f.Suspects) == 0 || f.Suspects[0].Launch != "off_by_one" {
		t.Errorf("without stacks or culprit: %+v", f)
	}
	if in.Device.Kind != "sim" || in.Stack != rt.String() || in.Guard.Mode != "hunt" || in.Guard.Policy != "report" || in.Guard.HuntTags[0] != "hunted" || in.Guard.Numbers["guarded"] != 1 || in.Memory.Launches == 0 || in.Memory.Limit == 0 {
		t.Errorf("the surroundings are %+v", in.Surroundings)
	}
	launched := false
	for _, e := range in.History {
		launched = launched || e.Launch == "off_by_one"
		if e.Time.After(f.Time) {
			t.Errorf("a record from after the finding: %v", e)
		}
	}
	if !launched || len(in.History) > 80 {
		t.Errorf("%d records, the culprit among them: %v", len(in.History), launched)
	}
}

// Whatever the machine is busy with, the times in an incident are in the order of what was
// done: a block is allocated, then launches use it, then it is freed.
func TestTheTimesOfAnIncidentAreInTheOrderOfWhatWasDone(t *testing.T) {
	for _, guard := range []fencepost.GuardMode{"ledger", "sample:1", "hunt"} {
		for _, backend := range []fencepost.Backend{fencepost.Async, fencepost.Pool} {
			rt := e2e.OpenDirty(t, fencepost.Config{Guard: guard, Resource: backend, Incidents: t.TempDir()})
			s := e2e.Lease(t, rt, "s")
			b := e2e.Allocate(t, rt, 1<<20, s.ID(), "victim") // large enough to keep its stacks
			launch := func(name string) error {
				return rt.LaunchNamed(t.Context(), name, s.ID(), []core.Use{{Block: b.ID, Access: core.Write}}, func(context.Context) error { return nil })
			}
			e2e.Succeed(t, "launch", errors.Join(launch("first"), launch("second")))
			e2e.Free(t, rt, b)
			if launch("late") == nil {
				t.Fatal("a stale handle was let through")
			}
			e2e.Succeed(t, "flush", rt.Incidents().Flush(t.Context()))
			in := e2e.OnlyIncident(t, rt)
			f := in.Finding
			if len(in.History) == 0 || len(f.Uses) != 2 || len(f.Suspects) != 1 || in.History[0].Generation != uint64(b.ID.Generation) {
				t.Fatalf("%s over %s: history %v, uses %v, suspects %v", guard, backend, in.History, f.Uses, f.Suspects)
			}
			order := []time.Time{in.History[0].Time, f.Allocated, f.Uses[1].Time, f.Uses[0].Time, f.Freed, f.Suspects[0].Time}
			if !slices.IsSortedFunc(order, time.Time.Compare) || order[0].IsZero() {
				t.Errorf("%s over %s: allocation asked for and done, two launches, free and late launch are at %v", guard, backend, order)
			}
		}
	}
}

// The history names the victim's records and those of streams concerned, not
// the noise of others, and is bounded.
func TestTheHistoryOfAnIncidentIsOfItsStreams(t *testing.T) {
	rt := e2e.OpenDirty(t, fencepost.Config{Guard: "hunt", Incidents: t.TempDir()})
	noise := e2e.Lease(t, rt, "noise")
	s := e2e.Lease(t, rt, "s")
	b := e2e.Allocate(t, rt, 1000, s.ID(), "victim")
	for range 300 {
		e2e.Free(t, rt, e2e.Allocate(t, rt, 64, noise.ID(), "noise"), e2e.Allocate(t, rt, 64, s.ID(), "near"))
	}
	e2e.Succeed(t, "memset", e2e.Memset(t.Context(), rt, b.ID.Ptr, b.Requested+16, s.Handle()))
	e2e.Free(t, rt, b)
	e2e.Succeed(t, "drain", rt.Drain(t.Context()))
	e2e.Succeed(t, "flush", rt.Incidents().Flush(t.Context()))
	in := e2e.OnlyIncident(t, rt)
	ofVictim := 0
	for _, e := range in.History {
		if e.Stream == uint64(noise.ID()) {
			t.Fatalf("a record of another stream: %v", e)
		}
		if e.Generation == uint64(b.ID.Generation) {
			ofVictim++
		}
	}
	if ofVictim == 0 || len(in.History) < 64 || len(in.History) > 80 {
		t.Errorf("%d records, %d of the victim", len(in.History), ofVictim)
	}
}

// A leak is found while the runtime closes: its incident is there afterwards.
func TestWhatClosingFindsIsWrittenToo(t *testing.T) {
	dir := t.TempDir()
	rt := e2e.OpenDirty(t, fencepost.Config{Guard: "ledger", Incidents: dir})
	e2e.Allocate(t, rt, 64, core.DefaultStream, "forgotten")
	left, err := rt.Close(t.Context())
	if err != nil || len(left.Leaks) != 1 {
		t.Fatalf("%v, %v", left, err)
	}
	if in := e2e.OnlyIncident(t, rt); in.Finding.Kind != "leak" || in.Finding.Victim.Tag != "forgotten" || in.Stack == "" {
		t.Errorf("%+v", in)
	}
	if gathered := e2e.Gather(t, rt); !strings.Contains(gathered, `gpumem_incidents_total{device="0",outcome="written"} 1`) ||
		!strings.Contains(gathered, `gpumem_findings_total{device="0",kind="leak",tag="forgotten"} 1`) || !strings.Contains(gathered, `gpumem_guard_mode{device="0",mode="ledger"} 1`) {
		t.Errorf("the metrics lack it:\n%s", gathered)
	}
}

func TestAFolderThatCannotBeWrittenToIsRefusedByName(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	e2e.Succeed(t, "write", os.WriteFile(file, nil, 0o600))
	_, err := fencepost.Open(t.Context(), fencepost.Config{Incidents: file})
	if e, ok := errors.AsType[*core.InvalidRequestError](err); !ok || e.Field != "Incidents" || !strings.Contains(e.Reason, file) {
		t.Errorf("got %v", err)
	}
	t.Setenv("FENCEPOST_INCIDENTS", filepath.Join(file, "below"))
	_, err = fencepost.Open(t.Context(), fencepost.Config{})
	if e, ok := errors.AsType[*core.InvalidRequestError](err); !ok || e.Field != "FENCEPOST_INCIDENTS" {
		t.Errorf("got %v", err)
	}
	t.Setenv("FENCEPOST_INCIDENTS", "")
	_, err = fencepost.Open(t.Context(), fencepost.Config{Incidents: t.TempDir(), IncidentConfig: incident.Config{MaxFiles: -1}})
	if e, ok := errors.AsType[*core.InvalidRequestError](err); !ok || e.Field != "IncidentConfig" {
		t.Errorf("got %v", err)
	}
}

// What keeps Close from its end is found there, and written all the same.
func TestACloseThatRunsOutOfTimeStillWritesItsIncidents(t *testing.T) {
	rt := e2e.OpenDirty(t, fencepost.Config{Guard: "ledger", Incidents: t.TempDir()})
	s := e2e.Lease(t, rt, "kept")
	e2e.Allocate(t, rt, 64, s.ID(), "forgotten")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := rt.Close(ctx); err == nil || !strings.Contains(err.Error(), "kept") {
		t.Errorf("Close says %v", err)
	}
	if in := e2e.OnlyIncident(t, rt); in.Finding.Kind != "leak" {
		t.Errorf("%+v", in.Finding)
	}
}

// A folder that goes away costs the incident and is said by Close; work goes on.
func TestALostFolderCostsItsIncidentsOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "incidents")
	rt := e2e.OpenDirty(t, fencepost.Config{Guard: "hunt", Incidents: dir})
	e2e.Succeed(t, "remove", os.RemoveAll(dir))
	e2e.Succeed(t, "write", os.WriteFile(dir, nil, 0o600))
	e2e.Overrun(t, rt, "victim")
	e2e.Single(t, rt, names.FindingOutOfBoundsWrite)
	if _, err := rt.Close(t.Context()); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("Close says %v", err)
	}
	if s := rt.Incidents().Stats(); s.Failed != 1 {
		t.Errorf("%+v", s)
	}
	if f := e2e.Single(t, rt, names.FindingOutOfBoundsWrite); f.Incident != "" {
		t.Errorf("the finding names a file that is not there: %s", f)
	}
}

// Open and Close under a build that fails leave no writer behind, which goleak
// would see.
func TestAFailedOpenClosesTheIncidents(t *testing.T) {
	cfg := fencepost.Config{Incidents: t.TempDir()}
	cfg.GuardConfig.Advanced.Tombstones = -1
	if _, err := fencepost.Open(t.Context(), cfg); err == nil {
		t.Fatal("a negative number of tombstones was accepted")
	}
}

// A request that does not fit the pool's limit is an incident which says what was free then.
func TestAnIncidentSaysWhatThePoolHeldThen(t *testing.T) {
	rt := e2e.OpenDirty(t, fencepost.Config{Guard: "off", Incidents: t.TempDir(), Resource: fencepost.Pool, Pool: cuda.PoolConfig{Limit: 16 << 20}})
	live := e2e.Allocate(t, rt, 3<<20, core.DefaultStream, "index")
	if _, err := rt.Allocate(t.Context(), core.Request{Bytes: 14 << 20, Tag: "beyond"}); !errors.Is(err, core.ErrOutOfMemory) {
		t.Fatalf("allocated beyond the limit: %v", err)
	}
	e2e.Succeed(t, "flush", rt.Incidents().Flush(t.Context()))
	in, st := e2e.OnlyIncident(t, rt), rt.Stats()
	if m := in.Memory; in.Finding.Kind != "oom" || m.Reserved != st.Reserved || m.Cached != st.Cached || m.Cached == 0 || m.Fragmented != st.OwnPool.Fragmented || m.Fragmented == 0 || m.PoolLimit != 16<<20 {
		t.Errorf("%s: the memory is %+v, the books say %+v", in.Finding.Kind, m, st)
	}
	if text := in.String(); !strings.Contains(text, "; at most 16.0 MiB") {
		t.Errorf("printed:\n%s", text)
	}
	e2e.Free(t, rt, live)
}
