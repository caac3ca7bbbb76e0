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
		"RMM's CSV":  {func(w io.Writer) logging.Sink { return logging.NewCSVSink(w, logging.Queue{}) }, alloctrace.FormatRMM, []string{"Tag", "Generation", "Error"}},
	}
	want := []alloctrace.Row{
		{Action: alloctrace.Allocate, Pointer: 0x7f00, Bytes: 100, Stream: 3, Tag: `say "x"`, Generation: 5},
		{Action: alloctrace.AllocateFailure, Bytes: 100, Stream: 3, Tag: `say "x"`, Error: "out of device memory"},
		{Action: alloctrace.Free, Pointer: 0x7f00, Bytes: 100, Stream: 3, Tag: `say "x"`, Generation: 5},
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
