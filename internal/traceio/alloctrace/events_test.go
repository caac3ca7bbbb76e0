package alloctrace_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
)

// every is an event of each operation, with all that the log has of it.
func every(start time.Time) (events []oplog.Event) {
	id := core.BlockID{Ptr: 0x7f00, Generation: 5, AllocStream: 3, Ordinal: 1}
	at := func(e oplog.Event) {
		e.Time, e.Duration, e.Layer, e.Ordinal, e.Stream = start.Add(time.Duration(len(events))*time.Second), 250, "logging", 1, 3
		events = append(events, e)
	}
	at(oplog.Event{Op: oplog.OpReserve, Tag: "claim", Requested: 9, Bytes: 9})
	at(oplog.Event{Op: oplog.OpAllocate, Block: id, Tag: `say "x"`, Requested: 100, Bytes: 356})
	at(oplog.Event{Op: oplog.OpAllocate, Tag: "big", Requested: 100, Bytes: 356, Err: fmt.Errorf("driver: %w", core.ErrOutOfMemory)})
	at(oplog.Event{Op: oplog.OpRefusal, Tag: "big", Requested: 100, Bytes: 356, Relieved: true, Err: &core.OutOfBudgetError{Requested: 100}})
	used := oplog.Event{Block: core.BlockID{Ptr: 0x7f00, Generation: 5, Ordinal: 1}, Tag: "rows", Requested: 200, Bytes: 712, Launch: "join", LaunchID: 77, Access: core.ReadWrite, Uses: 2, Waits: 3, Elided: 1,
		WaitedFor: [4]core.WaitRef{{Launch: 70}, {Launch: 71}, {Block: 5}}}
	for _, op := range []oplog.Op{oplog.OpPrepare, oplog.OpFinish, oplog.OpAbort, oplog.OpRecord} {
		used.Op = op
		at(used)
	}
	at(oplog.Event{Op: oplog.OpDeallocate, Block: id, Tag: "rows", Requested: 100, Bytes: 356})
	at(oplog.Event{Op: oplog.OpRelease, Block: id, Tag: "rows", Requested: 100, Bytes: 356})
	at(oplog.Event{Op: oplog.OpReap})
	at(oplog.Event{Op: oplog.OpDrain})
	at(oplog.Event{Op: oplog.OpReleaseClaim})
	return events
}

// What the logging decorator writes is read back whole.
func TestEventsAreReadAsTheyWereLogged(t *testing.T) {
	want := every(time.Now())
	var file bytes.Buffer
	for i, e := range want {
		must.Do(t, (logging.Records{{Event: e, Seq: uint64(i + 1)}}).WriteJSON(&file))
	}
	for name, data := range map[string][]byte{"plain": file.Bytes(), "gzipped": compress(t, file.Bytes())} {
		got := must.Get(alloctrace.ReadEvents(name, bytes.NewReader(data)))(t)
		same := cmp.Options{
			cmp.Comparer(func(a, b error) bool {
				return (a == nil) == (b == nil) && (a == nil || a.Error() == b.Error() && errors.Is(a, core.ErrOutOfMemory) == errors.Is(b, core.ErrOutOfMemory) && errors.Is(a, core.ErrOutOfBudget) == errors.Is(b, core.ErrOutOfBudget))
			}),
			cmp.Comparer(time.Time.Equal),
		}
		if diff := cmp.Diff(want, got, same); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// The wall clock may be set while a log is written. Differences of its times
// are then those of the monotonic clock; a log that a new process goes on with
// follows the wall clock.
func TestTimesOfALogFollowItsMonotonicClock(t *testing.T) {
	lines := []string{
		`{"op":"reap","time":"2026-01-01T00:00:00Z","mono_ns":1000000000,"stream":0}`,
		`{"op":"reap","time":"2026-01-01T00:00:00.9Z","mono_ns":1000000005,"stream":0}`, // set forward
		`{"op":"reap","time":"2026-01-01T00:10:00Z","mono_ns":7,"stream":0}`,            // a new process
		`{"op":"reap","time":"2026-01-01T00:10:00Z","mono_ns":9,"stream":0}`,
	}
	events := must.Get(alloctrace.ReadEvents("f", strings.NewReader(strings.Join(lines, "\n"))))(t)
	for i, want := range []time.Duration{0, 5, 10 * time.Minute, 10*time.Minute + 2} {
		if got := events[i].Time.Sub(events[0].Time); got != want {
			t.Errorf("line %d is %v after the first, want %v", i+1, got, want)
		}
	}
}

// eventErrors are lines that no log has.
var eventErrors = []struct{ line, field string }{
	{`{"op":"reap","mono_ns":1,"stream":0}`, "time"},
	{`{"op":"reap","time":"2026-01-01T00:00:00Z","stream":0}`, "mono_ns"},
	{`{"op":"reap","time":"2026-01-01T00:00:00Z","mono_ns":1}`, "stream"},
	{`{"op":"reap","time":"2026-01-01T00:00:00Z","mono_ns":-1,"stream":0}`, "mono_ns"},
	{`{"op":"reap","time":"2026-01-01T00:00:00Z","mono_ns":1,"stream":0,"duration_ns":-1}`, "duration_ns"},
	{`{"op":"reap","time":"2026-01-01T00:00:00Z","mono_ns":1,"stream":0,"device":16}`, "device"},
	{`{"op":"reap","time":"2026-01-01T00:00:00Z","mono_ns":1,"stream":0,"device":-1}`, "device"},
	{`{"op":"reap","time":"2026-01-01T00:00:00Z","mono_ns":1,"stream":0,"access":"peek"}`, "access"},
	{`{"op":"reap","time":"2026-01-01T00:00:00Z","mono_ns":1,"stream":0,"waits":-1}`, "uses"},
	{`{"op":"reap","time":"2026-01-01T00:00:00Z","mono_ns":1,"stream":0,"waited_launches":[1,2,3],"waited_blocks":[4,5]}`, "waited_launches"},
	{`{"op":"reap","time":"2026-01-01T00:00:00Z","mono_ns":1,"stream":0,"ptr":"12"}`, "ptr"},
	{`{"op":"sing","time":"2026-01-01T00:00:00Z","mono_ns":1,"stream":0}`, "op"},
	{`{"time":"2026-01-01T00:00:00Z"}`, "header"},
	{`{"op":7}`, "op"},
	{`{"op":` + "\n", "row"},
	{block(`"ptr":"0x4000000000000000"`), "ptr"},
	{block(`"ptr":"0xffffffffffffffff"`), "ptr"},
	{block(`"ptr":"0x7f00","requested":4611686018427387904`), "requested"},
	{block(`"ptr":"0x7f00","bytes":18446744073709551615`), "bytes"},
	{`Thread,Time,Action,Pointer,Size,Stream`, "header"},
	{``, "header"},
}

// block is a line about a block with further fields.
func block(fields string) string {
	return `{"op":"release","time":"2026-01-01T00:00:00Z","mono_ns":1,"stream":0,"generation":9,` + fields + `}`
}

// A request of any size may have been refused, and that is in our own logs.
func TestARefusalOfAnySizeIsRead(t *testing.T) {
	for _, op := range []string{"allocate", "refusal"} {
		events, err := alloctrace.ReadEvents("f", strings.NewReader(`{"op":"`+op+`","time":"2026-01-01T00:00:00Z","mono_ns":1,"stream":0,"requested":18446744073709551615,"bytes":18446744073709551615,"error":"out of budget","kind":"out_of_budget"}`))
		if err != nil || events[0].Requested != math.MaxUint64 {
			t.Errorf("%s: %v, %v", op, events, err)
		}
	}
}

func TestALineThatNoLogHasIsNamed(t *testing.T) {
	const good = `{"op":"reap","time":"2026-01-01T00:00:00Z","mono_ns":1,"stream":0}` + "\n"
	for _, c := range eventErrors {
		text, line := good+c.line, 2
		if c.field == "header" {
			text, line = c.line, 1
		}
		_, err := alloctrace.ReadEvents("f", strings.NewReader(text))
		if parse, ok := errors.AsType[*alloctrace.ParseError](err); !ok || parse.Field != c.field || parse.Line != line || parse.File != "f" {
			t.Errorf("%s: got %v, want field %s of line %d", c.line, err, c.field, line)
		}
	}
}

// FuzzReadEvents feeds any bytes: the answer is events or a ParseError.
func FuzzReadEvents(f *testing.F) {
	for _, c := range eventErrors {
		f.Add([]byte(c.line))
	}
	f.Add([]byte(log))
	var file bytes.Buffer
	for _, e := range every(time.Unix(1_700_000_000, 0)) {
		must.Do(f, (logging.Records{{Event: e}}).WriteJSON(&file))
	}
	f.Add(file.Bytes())
	f.Add([]byte(block(`"tag":"`+strings.Repeat("x", alloctrace.MaxLine)+`"`) + "\n" + block(`"tag":"\u001b[2J\u009b\u202e\x7f"`)))
	f.Add([]byte(`{"op":"reap","time":"9999-12-31T23:59:59Z","mono_ns":9223372036854775807,"duration_ns":9223372036854775807,"stream":18446744073709551615}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		events, err := alloctrace.ReadEvents("f", bytes.NewReader(data))
		if _, ok := errors.AsType[*alloctrace.ParseError](err); err != nil && (!ok || events != nil) {
			t.Errorf("%d events and %v", len(events), err)
		}
		for i := range events {
			if events[i].Ordinal < 0 || events[i].Ordinal >= core.MaxOrdinals || events[i].Duration < 0 {
				t.Errorf("event %+v", events[i])
			}
		}
	})
}
