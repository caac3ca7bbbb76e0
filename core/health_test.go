package core_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/core/names"
)

var lost = &core.DriverError{Op: "cuEventQuery", Code: 700, Name: "CUDA_ERROR_ILLEGAL_ADDRESS", Text: "an illegal memory access was encountered", Sticky: true}

// refusedAsLost checks that every admission is refused with the sticky error
// and that nothing of it reaches the resource.
func refusedAsLost(t *testing.T, rt *core.Runtime, fake *coretest.Fake, b core.Block) {
	t.Helper()
	fake.Calls()
	uses := []core.Use{{Block: b.ID, Access: core.Read}}
	_, allocate := rt.Allocate(t.Context(), core.Request{Bytes: 1})
	_, deallocate := rt.Deallocate(t.Context(), b.ID)
	_, prepare := rt.PrepareUse(t.Context(), core.UseRequest{Uses: uses})
	_, reserve := rt.Reserve(t.Context(), 1, "")
	launch := rt.Launch(t.Context(), 1, uses, func(context.Context) error { t.Error("launched on a lost device"); return nil })
	record := rt.RecordBlockUse(t.Context(), b.ID, 1)
	for op, err := range map[string]error{"allocate": allocate, "deallocate": deallocate, "prepare": prepare, "reserve": reserve, "launch": launch, "record": record} {
		var driver *core.DriverError
		if !errors.As(err, &driver) || driver != lost || !errors.Is(err, core.ErrSticky) {
			t.Errorf("%s on a lost device: got %v, want the sticky error", op, err)
		}
	}
	mustBe(t, "number of calls that reached the resource", len(fake.Calls()), 0)
}

func isWell(t *testing.T, rt *core.Runtime) {
	t.Helper()
	h := rt.Health()
	if !h.OK || h.State != names.HealthOK || h.Reason != "" || h.Err != nil || len(h.Signs) != 0 {
		t.Errorf("health is %+v, want none of it bad", h)
	}
}

func TestStickyErrorPoisonsTheRuntimeOnce(t *testing.T) {
	rt, fake, found := fakeRuntime(t)
	b := alloc(t, rt, 64)
	isWell(t, rt)
	fake.FailNext("ReapPending", fmt.Errorf("reap: %w", lost))
	mustBe(t, "whether reap returned the error", errors.Is(rt.ReapPending(t.Context()), lost), true)

	health := rt.Health()
	mustBe(t, "OK", health.OK, false)
	mustBe(t, "whether the health names the error", errors.Is(health.Err, lost), true)
	mustBe(t, "reason", health.Reason, "the device was lost in ReapPending: reap: "+lost.Error())
	mustBe(t, "state", health.State, names.HealthPoisoned)
	mustBe(t, "number of signs", len(health.Signs), 1)
	mustBe(t, "sign", health.Signs[0].Reason, names.HealthStickyError)
	refusedAsLost(t, rt, fake, b)
	mustBe(t, "sticky errors, refusals not being any", rt.StickyErrors(), uint64(1))

	rt.ReportSticky("kernel", lost)
	mustBe(t, "sticky errors", rt.StickyErrors(), uint64(2))
	mustBe(t, "since", rt.Health().Signs[0].Since, health.Signs[0].Since)
	all := found.take()
	mustBe(t, "number of findings", len(all), 1)
	mustBe(t, "kind", all[0].Kind, names.FindingStickyError)
	mustBe(t, "whether the finding names the error", errors.Is(all[0].Err, lost), true)
}

func TestEveryCallNoticesAStickyError(t *testing.T) {
	type world struct {
		rt   *core.Runtime
		b    core.Block
		open core.Ticket
	}
	ctx := t.Context()
	for op, call := range map[string]func(w world) error{
		"Allocate":    func(w world) error { _, err := w.rt.Allocate(ctx, core.Request{Bytes: 1}); return err },
		"Deallocate":  func(w world) error { _, err := w.rt.Deallocate(ctx, w.b.ID); return err },
		"PrepareUse":  func(w world) error { _, err := w.rt.PrepareUse(ctx, core.UseRequest{}); return err },
		"FinishUse":   func(w world) error { return w.rt.FinishUse(ctx, w.open) },
		"AbortUse":    func(w world) error { return w.rt.AbortUse(ctx, w.open) },
		"RecordUse":   func(w world) error { return w.rt.RecordBlockUse(ctx, w.b.ID, 1) },
		"ReapPending": func(w world) error { return w.rt.ReapPending(ctx) },
		"Drain":       func(w world) error { return w.rt.Drain(ctx) },
	} {
		rt, fake, _ := fakeRuntime(t)
		b := alloc(t, rt, 64)
		open, err := rt.PrepareBlockUse(ctx, b.ID, 1, core.Read)
		succeed(t, "prepare", err)
		fake.FailNext(op, lost)
		mustBe(t, "whether "+op+" returned the sticky error", errors.Is(call(world{rt, b, open}), lost), true)
		mustBe(t, "health after "+op, rt.Health().OK, false)
	}
}

func TestALaunchFunctionsStickyErrorPoisons(t *testing.T) {
	rt, fake, _ := fakeRuntime(t)
	b := alloc(t, rt, 64)
	err := rt.Launch(t.Context(), 1, []core.Use{{Block: b.ID, Access: core.Write}}, func(context.Context) error { return lost })
	mustBe(t, "whether the launch returned it", errors.Is(err, lost), true)
	mustBe(t, "launches, aborts, open", ends(rt), finishedOne)
	refusedAsLost(t, rt, fake, b)
}

func TestOtherErrorsDoNotPoison(t *testing.T) {
	rt, fake, found := fakeRuntime(t)
	rt.ReportSticky("kernel", io.EOF)
	rt.ReportSticky("kernel", nil)
	fake.FailNext("Allocate", &core.DriverError{Op: "cuMemAllocAsync", Code: 1})
	_, err := rt.Allocate(t.Context(), core.Request{Bytes: 1})
	mustBe(t, "whether the allocation failed in the driver", errors.Is(err, core.ErrDriver), true)
	isWell(t, rt)
	mustBe(t, "number of findings", found.count(), 0)
}

func TestConcurrentStickyErrorsAreReportedOnce(t *testing.T) {
	rt, _, found := fakeRuntime(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { rt.ReportSticky("kernel", lost) })
	}
	wg.Wait()
	mustBe(t, "number of findings", found.count(), 1)
}

// flying is a fake with launches in flight.
type flying struct {
	*coretest.Fake
	launches []core.UseRecord
}

func (f flying) Inspect() core.Inspector { return inFlight{f.Fake.Inspect(), f.launches} }

type inFlight struct {
	core.Inspector
	launches []core.UseRecord
}

func (i inFlight) InFlight() []core.UseRecord { return i.launches }

func TestALostDeviceIsReportedWithTheLaunchesInFlight(t *testing.T) {
	found := new(findings)
	f := flying{Fake: coretest.NewFake(0)}
	for launch := range uint64(200) {
		f.launches = append(f.launches, core.UseRecord{LaunchID: launch, Launch: "sort", Tags: [4]core.Tag{"rows"}})
	}
	rt := newRuntime(t, f, found.Report)
	rt.ReportSticky("kernel", lost)
	report := found.take()[0]
	mustBe(t, "number of suspects", len(report.Suspects), 128)
	for i, u := range report.Suspects {
		mustBe(t, "suspect", u.LaunchID, uint64(i))
	}
	if want := `in flight: launch 3 "sort" on stream default of "rows"`; !strings.Contains(report.String(), want) {
		t.Errorf("%v does not say %s", report, want)
	}
}

// Whatever was enqueued since: the launch that the driver names comes first, and the copies of
// the results come last.
func TestTheLaunchThatLostTheDeviceIsNamedBeforeTheCopiesBehindIt(t *testing.T) {
	found := new(findings)
	f := flying{Fake: coretest.NewFake(0)}
	for _, name := range []string{"copy.to_host", "gpumem.guard.verify", "late", "copy.on_device", "wild", "early", ""} {
		f.launches = append(f.launches, core.UseRecord{Launch: name})
	}
	rt := newRuntime(t, f, found.Report)
	rt.ReportSticky("kernel", fmt.Errorf("wild touched memory at 0x10: %w", lost))
	var order []string
	for _, u := range found.take()[0].Suspects {
		order = append(order, u.Launch)
	}
	mustBe(t, "order", strings.Join(order, " "), "wild late early  copy.to_host gpumem.guard.verify copy.on_device")
}

func TestOutOfMemoryIsAFinding(t *testing.T) {
	rt, fake, found := fakeRuntime(t)
	none := &core.DriverError{Op: "cuMemAllocAsync", Code: 2, Name: "CUDA_ERROR_OUT_OF_MEMORY", OutOfMemory: true}
	fake.FailNext("Allocate", none, &core.OutOfBudgetError{})
	for range 2 { // a budget's refusal is no finding
		_, err := rt.Allocate(t.Context(), core.Request{Bytes: 128, Requested: 100, Tag: "sort"})
		mustBe(t, "whether the allocation failed", err != nil, true)
	}
	all := found.take()
	mustBe(t, "number of findings", len(all), 1)
	mustBe(t, "kind", all[0].Kind, names.FindingOutOfMemory)
	mustBe(t, "victim", fmt.Sprintln(all[0].Victim.Tag, all[0].Victim.Requested, all[0].Victim.Bytes), "sort 100 128\n")
	mustBe(t, "health", rt.Health().OK, true)
}
