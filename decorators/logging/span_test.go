package logging

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

var traced = core.SpanRef{TraceID: [16]byte{1, 2}, SpanID: [8]byte{3, 4}}

func TestEveryRecordNamesTheSpanItRanUnder(t *testing.T) {
	b := newBench(t, Uses)
	for _, span := range []core.SpanRef{traced, {}} {
		ctx := ctx
		if !span.IsZero() {
			ctx = core.WithSpan(ctx, span)
		}
		block, err := b.log.Allocate(ctx, core.Request{Bytes: 64, Stream: 7})
		must.Do(t, err)
		finished, aborted := b.prepareIn(ctx, block), b.prepareIn(ctx, block)
		_, deallocated := b.log.Deallocate(ctx, core.BlockID{Generation: 1 << 40})
		for _, err := range []error{b.log.FinishUse(ctx, finished), b.log.AbortUse(ctx, aborted), b.log.ReapPending(ctx), b.log.Drain(ctx)} {
			must.Do(t, err)
		}
		_ = b.log.RecordUse(ctx, block.ID, 7)
		claim, _ := b.log.Reserve(ctx, 1, "a")
		_ = b.log.ReleaseClaim(ctx, claim.ID)
		records := b.ring.Snapshot()[b.seen:]
		if deallocated == nil || len(records) != 11 {
			t.Fatalf("%d records, a foreign free: %v", len(records), deallocated)
		}
		for _, r := range records {
			if r.Event.Op != oplog.OpRelease && r.Event.Span != span {
				t.Errorf("%v under %v, want %v", r.Event.Op, r.Event.Span, span)
			}
		}
		b.skip()
	}
}

func (b *bench) prepareIn(ctx context.Context, block core.Block) core.Ticket {
	b.t.Helper()
	ticket := must.Get(b.log.PrepareUse(ctx, core.UseRequest{Stream: 7, Uses: []core.Use{{Block: block.ID, Access: core.Read}}}))(b.t)
	return ticket
}

// contexts notes what a handler of slog is called with.
type contexts struct {
	slog.Handler
	spans []core.SpanRef
}

func (h *contexts) Handle(ctx context.Context, r slog.Record) error {
	h.spans = append(h.spans, core.SpanOf(ctx))
	return h.Handler.Handle(ctx, r)
}

func TestSlogRecordsNameTheSpanInAttributesAndContext(t *testing.T) {
	var text strings.Builder
	handler := &contexts{Handler: slog.NewJSONHandler(&text, nil)}
	sink := NewSlogSink(slog.New(handler), Queue{})
	sink.Put(Record{Seq: 1, Event: oplog.Event{Op: oplog.OpRefusal, Span: traced}})
	sink.Put(Record{Seq: 2, Event: oplog.Event{Op: oplog.OpRefusal}})
	must.Do(t, sink.Close(soon(t)))
	if len(handler.spans) != 2 || handler.spans[0] != traced || !handler.spans[1].IsZero() {
		t.Errorf("contexts of %v", handler.spans)
	}
	lines := strings.Split(text.String(), "\n")
	var first, second map[string]any
	if json.Unmarshal([]byte(lines[0]), &first) != nil || json.Unmarshal([]byte(lines[1]), &second) != nil {
		t.Fatal(text.String())
	}
	if first["trace_id"] != hex.EncodeToString(traced.TraceID[:]) || first["span_id"] != hex.EncodeToString(traced.SpanID[:]) {
		t.Errorf("%v", first)
	}
	if second["trace_id"] != nil || second["span_id"] != nil {
		t.Errorf("a record outside any trace: %v", second)
	}
}
