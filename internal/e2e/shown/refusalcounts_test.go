package shown_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// toldRefusals is how many refusals there were by kind: those by a budget or a reservation, and
// those for want of memory of the pool or the device.
type toldRefusals struct{ budget, memory uint64 }

// Each kind of refusal raises every reading of refusals by one, whatever the guard does.
func TestAllReadingsOfRefusalsAgree(t *testing.T) {
	for _, guard := range []fencepost.GuardMode{"off", "ledger", "sample:1"} {
		for _, backend := range []fencepost.Backend{fencepost.Pool, fencepost.Async} {
			t.Run(string(backend)+" "+string(guard), func(t *testing.T) { allReadingsAgree(t, guard, backend) })
		}
	}
}

func allReadingsAgree(t *testing.T, guard fencepost.GuardMode, backend fencepost.Backend) {
	const budget = 8 << 20
	log := logging.NewRing(1 << 12)
	cfg := fencepost.Config{Sim: sim.Config{Bytes: 64 << 20}, Resource: backend, Guard: guard, Budget: budget, LogSinks: []logging.Sink{log}}
	rt := e2e.OpenDirty(t, cfg)
	h := e2e.HandlerOf(t, fencepost.HandlerConfig{}, rt)
	lease := must.Get(rt.Streams().Acquire(t.Context(), "test"))(t)
	defer func() { must.Do(t, lease.Release()) }()
	allocate := func(bytes int, claim core.ClaimID) error {
		_, err := cuda.Alloc[byte](t.Context(), rt.Memory(), bytes, cuda.AllocOptions{Stream: lease.ID(), Tag: "test", Claim: claim})
		return err
	}
	do := func(name string, work func(*fencepost.Job) error, options ...fencepost.JobOption) error {
		return rt.Do(t.Context(), name, work, options...)
	}
	nothing := func(*fencepost.Job) error { return nil }

	var want toldRefusals
	after := func(what string, err error, match error, budget, memory uint64) {
		t.Helper()
		if !errors.Is(err, match) {
			t.Errorf("%s: %v, want %v", what, err, match)
		}
		want.budget, want.memory = want.budget+budget, want.memory+memory
		agree(t, what, rt, h, log, want)
	}
	after("an allocation beyond the budget", allocate(2*budget, 0), core.ErrOutOfBudget, 1, 0)
	held := must.Get(rt.Reserve(t.Context(), budget/2, "held"))(t)
	after("an allocation", allocate(budget*3/4, 0), core.ErrOutOfBudget, 1, 0)
	_, err := rt.Reserve(t.Context(), budget*3/4, "direct")
	after("a reservation", err, core.ErrOutOfBudget, 1, 0)
	after("of a job that does not wait", do("direct", nothing, fencepost.Reserve(budget*3/4, 0)), core.ErrOutOfBudget, 1, 0)
	after("of a job that waits", do("waits", nothing, fencepost.Reserve(budget*3/4, time.Millisecond)), core.ErrOutOfBudget, 1, 0)
	after("of a job beyond the budget", do("never", nothing, fencepost.Reserve(2*budget, time.Minute)), core.ErrOutOfBudget, 1, 0)
	after("beyond a claim", allocate(budget*3/4, held.ID), core.ErrClaimExceeded, 1, 0)
	after("beyond a job's reservation", do("exceeds", func(j *fencepost.Job) error {
		_, err := fencepost.Alloc[byte](j, 8192)
		return err
	}, fencepost.Reserve(4096, 0)), core.ErrClaimExceeded, 1, 0)

	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error)
	go func() { first <- rt.Do(ctx, "first", nothing, fencepost.Reserve(budget*3/4, time.Minute)) }()
	for rt.Waiting() == 0 {
		time.Sleep(time.Millisecond)
	}
	after("in line", do("second", nothing, fencepost.Reserve(4096, time.Millisecond)), core.ErrOutOfBudget, 1, 0)
	after("in line, admitted", do("third", nothing, fencepost.Admit(), fencepost.Reserve(4096, time.Millisecond)), core.ErrOutOfBudget, 1, 0)
	cancel()
	after("a wait that a context ended", <-first, context.Canceled, 0, 0) // no budget refused it
	must.Do(t, rt.ReleaseClaim(t.Context(), held.ID))

	for range 3 {
		must.Do(t, do("learned", func(j *fencepost.Job) error {
			_, err := fencepost.Alloc[byte](j, budget/2)
			return err
		}, fencepost.Admit()))
	}
	must.Do(t, rt.Drain(t.Context()))
	rt.Budget().SetLimit(budget / 4)
	after("admitted, and never fits", do("learned", nothing, fencepost.Admit()), core.ErrOutOfBudget, 1, 0)
	rt.Budget().SetLimit(budget)

	must.Do(t, rt.TrimPool(t.Context(), 0))
	device := e2e.Simulated(rt)
	free, _, err := device.MemInfo()
	must.Do(t, err)
	others := must.Get(device.MemAlloc(free - 1<<20))(t)
	t.Cleanup(func() { must.Do(t, device.MemFree(others)) })
	after("for want of memory", allocate(budget/2, 0), core.ErrOutOfMemory, 0, 1)
}

var refusalSamples = regexp.MustCompile(`(?m)^(gpumem_(?:budget_)?refusals_total)\{([^}]*)\} (\d+)$`)

// agree compares every reading.
func agree(t *testing.T, what string, rt *fencepost.Runtime, h http.Handler, log *logging.Ring, want toldRefusals) {
	t.Helper()
	var byBudget, byReason toldRefusals
	for _, m := range refusalSamples.FindAllStringSubmatch(e2e.Request(h, http.MethodGet, "/metrics", "").Body.String(), -1) {
		n := must.Get(strconv.ParseUint(m[3], 10, 64))(t)
		switch reason := regexp.MustCompile(`reason="(.*?)"`).FindStringSubmatch(m[2]); {
		case m[1] == "gpumem_budget_refusals_total":
			byBudget.budget += n
		case reason[1] == "out_of_budget", reason[1] == "exceeds_budget", reason[1] == "claim_exceeded":
			byReason.budget += n
		case reason[1] == "out_of_memory":
			byReason.memory += n
		}
	}
	var state struct {
		Device struct {
			Counters struct{ Refusals uint64 }
			Refusals struct{ Total uint64 }
		}
	}
	must.Do(t, json.Unmarshal(e2e.Request(h, http.MethodGet, "/debug/gpumem/state", "").Body.Bytes(), &state))
	var logged toldRefusals
	for _, e := range log.Events() {
		switch {
		case e.Op != oplog.OpRefusal || e.Relieved:
		case errors.Is(e.Err, core.ErrOutOfMemory):
			logged.memory++
		default:
			logged.budget++
		}
	}
	for reading, got := range map[string]uint64{"Stats": rt.Stats().Refusals, "gpumem_budget_refusals_total": byBudget.budget,
		"gpumem_refusals_total": byReason.budget, "the live view's counters": state.Device.Counters.Refusals, "the log": logged.budget} {
		if got != want.budget {
			t.Errorf("after %s: %s has %d refusals by budgets, want %d", what, reading, got, want.budget)
		}
	}
	for reading, got := range map[string]uint64{"gpumem_refusals_total": byReason.memory, "the log": logged.memory} {
		if got != want.memory {
			t.Errorf("after %s: %s has %d refusals for want of memory, want %d", what, reading, got, want.memory)
		}
	}
	if got := state.Device.Refusals.Total; got != want.budget+want.memory {
		t.Errorf("after %s: the live view lists %d refusals, want %d", what, got, want.budget+want.memory)
	}
}
