package alloctrace_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
)

// log is a short run as decorators/logging writes it: replay takes the
// allocations, the frees and what failed, and skips the rest.
const log = `{"time":"2026-11-20T10:00:00.000000001Z","mono_ns":10,"op":"allocate","device":1,"stream":3,"ptr":"0x7f00","generation":5,"tag":"sort.keys","requested":100,"bytes":356,"duration_ns":7,"layer":"logging"}
{"time":"2026-11-20T10:00:00.000000002Z","mono_ns":11,"op":"prepare","device":1,"stream":3,"launch":"sort","access":"read","waits":1,"elided":0,"layer":"logging","duration_ns":2}
{"time":"2026-11-20T10:00:00.000000003Z","mono_ns":12,"op":"allocate","device":1,"stream":3,"ptr":"0x0","generation":0,"tag":"big","requested":1000,"bytes":1000,"duration_ns":7,"layer":"logging","error":"out of device memory","kind":"out_of_memory"}
{"time":"2026-11-20T10:00:00.000000004Z","mono_ns":13,"op":"refusal","device":1,"stream":3,"requested":9,"bytes":9,"layer":"budget","error":"out of budget","kind":"out_of_budget"}
{"time":"2026-11-20T10:00:00.000000005Z","mono_ns":14,"op":"deallocate","device":1,"stream":3,"ptr":"0x7f00","generation":5,"layer":"logging","error":"driver error","kind":"driver"}
{"time":"2026-11-20T10:00:00.000000006Z","mono_ns":15,"op":"deallocate","device":1,"stream":3,"ptr":"0x7f00","generation":5,"tag":"sort.keys","requested":100,"bytes":356,"layer":"logging"}
`

func TestLogRows(t *testing.T) {
	trace := read(t, log)
	want := []alloctrace.Row{
		{Line: 1, Time: 10 * time.Nanosecond, Action: alloctrace.Allocate, Pointer: 0x7f00, Bytes: 100, Padded: 356, Stream: 3, Tag: "sort.keys", Generation: 5, Device: 1},
		{Line: 3, Time: 12 * time.Nanosecond, Action: alloctrace.AllocateFailure, Bytes: 1000, Padded: 1000, Stream: 3, Tag: "big", Error: "out of device memory", Device: 1},
		{Line: 4, Time: 13 * time.Nanosecond, Action: alloctrace.AllocateFailure, Bytes: 9, Padded: 9, Stream: 3, Error: "out of budget", Device: 1},
		{Line: 6, Time: 15 * time.Nanosecond, Action: alloctrace.Free, Pointer: 0x7f00, Bytes: 100, Padded: 356, Stream: 3, Tag: "sort.keys", Generation: 5, Device: 1},
	}
	if diff := cmp.Diff(want, trace.Rows); diff != "" {
		t.Error(diff)
	}
	if trace.Skipped != 2 || trace.Format.String() != "fencepost-jsonl" {
		t.Errorf("skipped %d of format %v, want 2 of fencepost-jsonl", trace.Skipped, trace.Format)
	}
}

func TestLogSizeFallsBackToThePaddedOne(t *testing.T) {
	trace := read(t, `{"op":"allocate","mono_ns":1,"stream":0,"ptr":"0x1","generation":1,"bytes":64}`)
	if got := trace.Rows[0].Bytes; got != 64 {
		t.Errorf("%d bytes, want 64", got)
	}
}

// Jobs come beside the rows, as they ended.
func TestAJobOfALogIsRead(t *testing.T) {
	trace := read(t, `{"op":"job","mono_ns":5,"duration_ns":100,"device":1,"stream":3,"tag":"sort","requested":90,"bytes":256,"job":{"waited_for_memory_ns":7,"waited_for_stream_ns":8}}
{"op":"allocate","mono_ns":1,"stream":0,"ptr":"0x1","generation":1,"bytes":64}
{"op":"job","mono_ns":9,"duration_ns":10,"stream":0,"tag":"late","job":{"waited_for_memory_ns":9223372036854775807,"waited_for_stream_ns":9223372036854775807}}`)
	want := []alloctrace.Job{{Name: "sort", Start: 5, Duration: 100, Waited: 15, Stream: 3, Device: 1, Bytes: 256}, {Name: "late", Start: 9, Duration: 10, Waited: 10}}
	if diff := cmp.Diff(want, trace.Jobs); diff != "" || len(trace.Rows) != 1 {
		t.Error(diff, len(trace.Rows))
	}
}

func TestLogErrorsNameFileLineAndField(t *testing.T) {
	const good = `{"op":"reap"}` + "\n"
	cases := map[string]struct{ line, want string }{
		"no object":          {`[]`, `f:2: row: not a JSON object: json: cannot unmarshal array into Go value of type alloctrace.logLine, got "[]"`},
		"cut line":           {`{"op":"alloc`, `f:2: row: not a JSON object: unexpected end of JSON input, got "{\"op\":\"alloc"`},
		"no operation":       {`{}`, `f:2: op: missing`},
		"unknown operation":  {`{"op":"resize"}`, `f:2: op: unknown operation, got "resize"`},
		"no time":            {`{"op":"allocate"}`, `f:2: mono_ns: missing`},
		"no stream":          {`{"op":"allocate","mono_ns":1}`, `f:2: stream: missing`},
		"no generation":      {`{"op":"deallocate","mono_ns":1,"stream":0}`, `f:2: generation: missing`},
		"no size":            {`{"op":"allocate","mono_ns":1,"stream":0,"generation":1}`, `f:2: requested: missing`},
		"size overflows":     {`{"op":"allocate","requested":18446744073709551616}`, `f:2: requested: does not fit in uint64, got "number 18446744073709551616"`},
		"size negative":      {`{"op":"allocate","requested":-1}`, `f:2: requested: does not fit in uint64, got "number -1"`},
		"size a string":      {`{"op":"allocate","requested":"1"}`, `f:2: requested: does not fit in uint64, got "string"`},
		"pointer":            {`{"op":"allocate","mono_ns":1,"stream":0,"generation":1,"requested":1,"ptr":"7"}`, `f:2: ptr: want "0x" and hexadecimal digits, or "(nil)", got "7"`},
		"time negative":      {`{"op":"allocate","mono_ns":-1,"stream":0,"generation":1,"requested":1}`, `f:2: mono_ns: must not be negative, got "-1"`},
		"device negative":    {`{"op":"allocate","mono_ns":1,"stream":0,"generation":1,"requested":1,"device":-1}`, `f:2: device: must not be negative, got "-1"`},
		"job without one":    {`{"op":"job","mono_ns":1,"stream":0}`, `f:2: job: missing`},
		"job too long":       {`{"op":"job","mono_ns":1,"stream":0,"duration_ns":31536000000000001,"job":{}}`, `f:2: duration_ns: negative, or longer than a year, got "31536000000000001"`},
		"job too large":      {`{"op":"job","mono_ns":1,"stream":0,"bytes":4398046511105,"job":{}}`, `f:2: bytes: more than any device has, got "4398046511105"`},
		"generation of zero": {`{"op":"deallocate","mono_ns":1,"stream":0,"generation":0}`, `f:2: generation: generations start at 1, got "0"`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { wantError(t, good+c.line+"\n", c.want) })
	}
}
