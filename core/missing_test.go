package core_test

import (
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/testkit/niltest"
)

func TestAMethodOfNilIsAnError(t *testing.T) {
	niltest.Refuses(t, (*core.Runtime)(nil))
	for _, rec := range []*core.LaunchRecorder{nil, {}} {
		niltest.Refuses(t, rec)
		mustBe(t, "the mode", rec.Named("none").Mode(), core.RecorderMode(0))
		mustBe(t, "the stream", rec.LaunchStream(), core.DefaultStream)
		mustBe(t, "the number of uses", rec.RecordedCount(), 0)
	}
}

func TestNilWhereSomethingIsNeededIsAnError(t *testing.T) {
	rt, _, _ := fakeRuntime(t)
	b := alloc(t, rt, 64)
	used := core.NewStrictRecorder(1)
	succeed(t, "read", used.Read(b))
	_, chained := core.Chain(nil)
	_, made := core.NewRuntime(nil, nil)
	_, prepared := rt.PrepareFirstUse(t.Context(), nil, 1, core.Read)
	for what, err := range map[string]error{
		"a launch": rt.Launch(t.Context(), 1, []core.Use{{Block: b.ID, Access: core.Write}}, nil), "memory of a first use": prepared, "a base": chained, "a resource": made,
		"a named launch":      rt.LaunchNamed(t.Context(), "a", 1, []core.Use{{Block: b.ID, Access: core.Read}}, nil),
		"memory that is read": core.NewStrictRecorder(1).Read(nil), "memory that is written": core.NewPermissiveRecorder(1).Write(nil),
		"a runtime to prepare in": used.Preflight(t.Context(), nil), "a runtime to commit in": used.Commit(t.Context(), nil), "a runtime to abort in": used.Abort(t.Context(), nil),
	} {
		if e, ok := errors.AsType[*core.InvalidRequestError](err); !ok || e.Op == "" || e.Field == "" {
			t.Errorf("nil in place of %s: %v", what, err)
		}
	}
	succeed(t, "abort", used.Abort(t.Context(), rt))
	mustBe(t, "open intents", rt.Stats().OpenIntents, uint64(0))
}
