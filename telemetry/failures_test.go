package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"unicode/utf8"

	"go.opentelemetry.io/otel/codes"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// failures are errors and how they are classified, on spans and in metrics.
var failures = []struct {
	err       error
	errorType string
	reason    metrics.Reason
}{
	{&core.OutOfBudgetError{Requested: 8}, "out_of_budget", metrics.ReasonOutOfBudget},
	{&core.OutOfBudgetError{Requested: 8, Limit: 8}, "out_of_budget", metrics.ReasonOutOfBudget},
	{fmt.Errorf("refused: %w", &core.OutOfBudgetError{Requested: 9, Limit: 8}), "exceeds_budget", metrics.ReasonExceedsBudget},
	{fmt.Errorf("refused: %w", &core.OutOfBudgetError{Requested: 9, Limit: 8, Claim: 1, Reserved: 8}), "claim_exceeded", metrics.ReasonClaimExceeded},
	{&core.DriverError{Op: "cuMemAllocAsync", Name: "CUDA_ERROR_OUT_OF_MEMORY", OutOfMemory: true}, "out_of_memory", metrics.ReasonOutOfMemory},
	{&core.DriverError{Op: "cuEventRecord", Name: "CUDA_ERROR_ILLEGAL_ADDRESS", Sticky: true}, "CUDA_ERROR_ILLEGAL_ADDRESS", metrics.ReasonDriver},
	{&core.DriverError{Op: "cuEventRecord"}, "driver_error", metrics.ReasonDriver},
	{&core.UseAfterFreeError{Op: "Deallocate", Generation: 1}, "use_after_free", metrics.ReasonUseAfterFree},
	{&core.OutOfBoundsError{Op: "Deallocate"}, "out_of_bounds", metrics.ReasonOutOfBounds},
	{&core.StreamMisuseError{Op: "PrepareUse"}, "stream_misuse", metrics.ReasonStreamMisuse},
	{refuse.Unsupported("PrepareUse", "direct", "none"), "stream_misuse", metrics.ReasonStreamMisuse},
	{&core.InvalidRequestError{Op: "Allocate"}, "invalid_request", metrics.ReasonInvalidRequest},
	{fmt.Errorf("refused: %w", core.ErrClosed), "closed", metrics.ReasonClosed},
	{context.DeadlineExceeded, "deadline_exceeded", metrics.ReasonDeadlineExceeded},
	{context.Canceled, "canceled", metrics.ReasonCanceled},
	{errors.New("odd"), "_OTHER", metrics.ReasonOther},
	{errors.Join(errors.New("launch failed"), &core.DriverError{Name: "CUDA_ERROR_UNKNOWN"}), "CUDA_ERROR_UNKNOWN", metrics.ReasonDriver},
}

func TestEveryFailureIsClassified(t *testing.T) {
	covered := map[metrics.Reason]bool{}
	for _, f := range failures {
		covered[f.reason] = true
		if got := telemetry.ErrorType(f.err); got != f.errorType {
			t.Errorf("ErrorType(%v) = %q, want %q", f.err, got, f.errorType)
		}
		if got := metrics.ReasonOf(f.err); got != f.reason {
			t.Errorf("ReasonOf(%v) = %v, want %v", f.err, got, f.reason)
		}
	}
	for _, reason := range metrics.Reasons() {
		if !covered[reason] {
			t.Errorf("no failure of reason %v is tested", reason)
		}
	}
	if got := metrics.Reason(99).String(); got != "_OTHER" {
		t.Errorf("an unknown reason is called %q", got)
	}
}

// Each failure of each operation marks its spans and is counted once.
func TestFailuresMarkSpansAndAreCounted(t *testing.T) {
	for _, f := range failures {
		for _, op := range []oplog.Op{oplog.OpAllocate, oplog.OpDeallocate, oplog.OpPrepare, oplog.OpFinish, oplog.OpAbort} {
			r := newTraced(t, telemetry.Config{})
			if got := fail(t, r, op, f.err); !errors.Is(got, f.err) {
				t.Errorf("%v: got %v, want %v as it came", op, got, f.err)
			}
			r.wantStatus(t, op, f.err, f.errorType)
			o := r.Operations()
			if o.Failed(op, f.reason) != 1 {
				t.Errorf("%v of %v was not counted", f.reason, op)
			}
		}
	}
}

// fail runs op so that the upstream fails it with err.
func fail(t *testing.T, r traced, op oplog.Op, err error) error {
	t.Helper()
	quiet := unsampled(t.Context())
	b := must.Get(r.Allocate(quiet, core.Request{Bytes: 64, Stream: 1, Tag: "x"}))(t)
	req := core.UseRequest{Stream: 1, Launch: "k", Uses: uses(core.Write, b)}
	r.fake.FailNext(map[oplog.Op]string{oplog.OpAllocate: "Allocate", oplog.OpDeallocate: "Deallocate",
		oplog.OpPrepare: "PrepareUse", oplog.OpFinish: "FinishUse", oplog.OpAbort: "AbortUse"}[op], err)
	var got error
	switch op {
	case oplog.OpAllocate:
		_, got = r.Allocate(r.request(t), core.Request{Bytes: 64, Stream: 1})
	case oplog.OpDeallocate:
		_, got = r.Deallocate(r.request(t), b.ID)
	case oplog.OpPrepare:
		_, got = r.PrepareUse(r.request(t), req)
	case oplog.OpFinish:
		got = r.FinishUse(quiet, must.Get(r.PrepareUse(r.request(t), req))(t))
	case oplog.OpAbort:
		got = r.AbortUse(quiet, must.Get(r.PrepareUse(r.request(t), req))(t))
	}
	return got
}

// wantStatus checks that all spans are marked but the prepare of a launch
// that failed later.
func (r traced) wantStatus(t *testing.T, op oplog.Op, err error, errorType string) {
	t.Helper()
	for _, s := range r.recorder.Ended() {
		later := op == oplog.OpFinish || op == oplog.OpAbort
		if later && operationOf(s) == string(telemetry.SpanPrepare) {
			if s.Status().Code != codes.Unset {
				t.Errorf("%v: the prepare before it has status %v", op, s.Status())
			}
			continue
		}
		if s.Status().Code != codes.Error || s.Status().Description != err.Error() {
			t.Errorf("%v: %s has status %v, want the error %v", op, s.Name(), s.Status(), err)
		}
		if got := attributeOf(s, telemetry.AttrErrorType).AsString(); got != errorType {
			t.Errorf("%v: %s has error.type %q, want %q", op, s.Name(), got, errorType)
		}
	}
}

func TestGoldenFailures(t *testing.T) {
	r := newTraced(t, telemetry.Config{})
	b := must.Get(r.Allocate(unsampled(t.Context()), core.Request{Bytes: 64, Stream: 1}))(t)
	for _, op := range []string{"Allocate", "Deallocate", "PrepareUse"} {
		r.fake.FailNext(op, errors.New("no"))
	}
	_, allocated := r.Allocate(r.request(t), core.Request{Bytes: 128, Requested: 100, Stream: 1, Tag: "big"})
	_, freed := r.Deallocate(r.request(t), b.ID)
	_, prepared := r.PrepareUse(r.request(t), core.UseRequest{Stream: 2, Launch: "k", Uses: uses(core.Read, b)})
	stale := b.ID
	stale.Generation = core.NextGeneration()
	_, used := r.PrepareUse(r.request(t), core.UseRequest{Stream: 2, Uses: []core.Use{{Block: b.ID, Access: core.Read}, {Block: stale, Access: core.Read}}})
	for i, err := range []error{allocated, freed, prepared, used} {
		if err == nil {
			t.Fatalf("call %d did not fail", i)
		}
	}
	uaf := fmt.Sprintf(" error.type=use_after_free Error(%v)", used)
	const other = " error.type=_OTHER Error(no)"
	r.wantSpans(t,
		"alloc/1 big in caller cuda.device.index=0 stream.id=1 tag=big block.requested=100 block.bytes=128"+other,
		"dealloc/1 in caller cuda.device.index=0 stream.id=1 generation=#1"+other,
		"prepare/1 k in launch/1 cuda.device.index=0 stream.id=2 launch.name=k generations=1"+other,
		"launch/1 k in caller cuda.device.index=0 stream.id=2 launch.name=k launch.uses=1 launch.outcome=refused"+other,
		"prepare/2 in launch/2 cuda.device.index=0 stream.id=2 generations=2 generation=#2"+uaf,
		"launch/2 in caller cuda.device.index=0 stream.id=2 launch.uses=2 launch.outcome=refused"+uaf,
	)
}

// A tag that is not UTF-8 must not lose the batch that its span travels in.
func TestTextAttributesAreValid(t *testing.T) {
	r := newTraced(t, telemetry.Config{})
	must.Get(r.Allocate(r.request(t), core.Request{Bytes: 64, Tag: "a\xffb"}))(t)
	if got := attributeOf(r.recorder.Ended()[0], telemetry.AttrTag).AsString(); got != names.Bound("a\xffb") ||
		!utf8.ValidString(got) {
		t.Errorf("the tag is %q", got)
	}
}
