package oplog_test

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/core/oplog"
)

func TestAnEventSaysHowMuchOfItsTraceWasExported(t *testing.T) {
	span := core.SpanRef{TraceID: [16]byte{1}, SpanID: [8]byte{2}}
	for want, e := range map[string]oplog.Event{"": {Alone: true}, names.TraceFull: {Span: span}, names.TraceEvent: {Span: span, Alone: true}} {
		if got := e.Span.Extent(e.Alone); got != want {
			t.Errorf("%+v: %q, want %q", e, got, want)
		}
	}
}

func TestOperationNames(t *testing.T) {
	all := map[oplog.Op]string{
		oplog.OpAllocate: "allocate", oplog.OpDeallocate: "deallocate", oplog.OpPrepare: "prepare", oplog.OpFinish: "finish",
		oplog.OpAbort: "abort", oplog.OpRecord: "record", oplog.OpReserve: "reserve", oplog.OpReleaseClaim: "release_claim",
		oplog.OpReap: "reap", oplog.OpDrain: "drain", oplog.OpRefusal: "refusal", oplog.OpRelease: "release",
		oplog.OpDevice: "device", oplog.OpJob: "job", 0: "unknown", oplog.OpJob + 1: "unknown", 255: "unknown",
	}
	for op, want := range all {
		if got := op.String(); got != want {
			t.Errorf("operation %d is %q, want %q", op, got, want)
		}
	}
}
