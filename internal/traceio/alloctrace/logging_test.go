package alloctrace_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
)

// episode is an allocation, a launch, a failed allocation, a failed free and
// the free, as the logging decorator sees them.
func episode() []oplog.Event {
	id := core.BlockID{Ptr: 0x7f00, Generation: 5, AllocStream: 3}
	block := oplog.Event{Layer: "logging", Stream: 3, Block: id, Tag: `say "x"`, Requested: 100, Bytes: 356}
	event := func(op oplog.Op, err error) oplog.Event {
		e := block
		e.Op, e.Err, e.Time = op, err, time.Now()
		return e
	}
	refused := event(oplog.OpAllocate, core.ErrOutOfMemory)
	refused.Block = core.BlockID{}
	return []oplog.Event{
		event(oplog.OpAllocate, nil), event(oplog.OpPrepare, nil), event(oplog.OpFinish, nil),
		refused, event(oplog.OpDeallocate, errors.New("later")), event(oplog.OpReap, nil), event(oplog.OpDeallocate, nil),
	}
}

// TestLogsOfTheLoggingDecoratorAreRead keeps the writer and this reader at one
// format, in both formats.
func TestLogsOfTheLoggingDecoratorAreRead(t *testing.T) {
	sinks := map[string]struct {
		open   func(io.Writer) logging.Sink
		format alloctrace.Format
		ignore []string
	}{
		"JSON lines": {func(w io.Writer) logging.Sink { return logging.NewJSONSink(w, logging.Queue{}) }, alloctrace.FormatLog, nil},
		"RMM's CSV":  {func(w io.Writer) logging.Sink { return logging.NewCSVSink(w, logging.Queue{}) }, alloctrace.FormatRMM, []string{"Tag", "Generation", "Error", "Padded"}},
	}
	want := []alloctrace.Row{
		{Action: alloctrace.Allocate, Pointer: 0x7f00, Bytes: 100, Padded: 356, Stream: 3, Tag: `say "x"`, Generation: 5},
		{Action: alloctrace.AllocateFailure, Bytes: 100, Padded: 356, Stream: 3, Tag: `say "x"`, Error: "out of device memory"},
		{Action: alloctrace.Free, Pointer: 0x7f00, Bytes: 100, Padded: 356, Stream: 3, Tag: `say "x"`, Generation: 5},
	}
	for name, s := range sinks {
		t.Run(name, func(t *testing.T) {
			var file bytes.Buffer
			sink := s.open(&file)
			for i, e := range episode() {
				sink.Put(logging.Record{Event: e, Seq: uint64(i) + 1})
			}
			must.Do(t, sink.Close(context.Background()))
			trace := must.Get(alloctrace.Read(name, &file))(t)
			ignore := cmpopts.IgnoreFields(alloctrace.Row{}, append(s.ignore, "Line", "Time")...)
			if diff := cmp.Diff(want, trace.Rows, ignore); diff != "" || trace.Format != s.format {
				t.Errorf("format %v, rows:\n%s", trace.Format, diff)
			}
		})
	}
}

// What the device did is read as it was logged, to the nanosecond.
func TestWhatTheDeviceDidIsReadAsItWasLogged(t *testing.T) {
	span := core.SpanRef{TraceID: [16]byte{15: 1}, SpanID: [8]byte{7: 2}}
	began := time.Now().UTC().Round(0)
	want := oplog.DeviceWork{Launch: 7, Name: "query", Stream: 3, On: 2, Span: span, Weight: 4, Prepared: began.Add(-900), Reached: began.Add(-700), Began: began, Ended: began.Add(1e6),
		Bound: 12, Unattributed: 100, Waits: []oplog.DeviceWait{
			{Stream: 4, For: core.WaitRef{Launch: 5}, Launch: "merge", Span: span, Generation: 9, Tag: "index", Access: core.Write, Own: core.Read, Held: 600},
			{Stream: 5, For: core.WaitRef{Block: 11}, Generation: 11, Tag: "fresh", Access: core.Write, Own: core.ReadWrite, Held: -1}}}
	var file bytes.Buffer
	sink := logging.NewJSONSink(&file, logging.Queue{})
	sink.Put(logging.Record{Event: want.Event(0), Seq: 1})
	must.Do(t, sink.Close(context.Background()))
	events := must.Get(alloctrace.ReadEvents("log", &file))(t)
	if len(events) != 1 || events[0].Span != span {
		t.Fatalf("%+v", events)
	}
	if diff := cmp.Diff(want, *events[0].Device); diff != "" {
		t.Error(diff)
	}
}
