package alloctrace_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
)

// logOf is n records of a log.
func logOf(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, `{"time":"2026-01-01T00:00:00Z","mono_ns":%d,"seq":%d,"op":"allocate","device":0,"stream":1,"requested":4096,"ptr":"0x7f00","generation":%d}`+"\n", i, i+7, i+1)
	}
	return text.String()
}

// A process that crashes leaves a file that ends anywhere. Its whole rows are
// read, and it is said where it was cut.
func TestAFileCutAnywhereIsReadUpToItsLastWholeRow(t *testing.T) {
	csv := header
	for i := range 4 {
		csv += fmt.Sprintf("1,00:00:00.%06d,allocate,0x7f%06x,4096,0x55c0de0010\n", i, i)
	}
	for headers, text := range []string{logOf(4), csv} {
		first := strings.Index(text, "}\n") + 2 // the end of the first row
		if headers == 1 {
			first = len(header) + strings.Index(csv[len(header):], "\n") + 1
		}
		for n := first; n < len(text); n++ {
			whole := strings.Count(text[:n], "\n")
			cut := whole + 1
			switch {
			case text[n-1] == '\n':
				cut = 0
			case text[n] == '\n': // of this row only the end is missing
				whole, cut = whole+1, 0
			}
			trace := must.Get(alloctrace.Read("f", strings.NewReader(text[:n])))(t)
			if len(trace.Rows) != whole-headers || trace.Passed.Cut != cut {
				t.Fatalf("%q: %d rows, cut %d; want %d, %d", text[:n], len(trace.Rows), trace.Passed.Cut, whole-headers, cut)
			}
		}
	}
	text := logOf(4)
	events := 0
	passed, err := alloctrace.DefaultLimits.EachEvent("f", strings.NewReader(text[:len(text)-9]), func(string, oplog.Event) { events++ })
	if err != nil || events != 3 || passed.Cut != 4 {
		t.Errorf("history: %d events, %+v, %v", events, passed, err)
	}
}

// A log that lost its beginning, or records in between, is known by the numbers of
// the others; a log that a second process goes on with lacks none.
func TestRecordsThatAreMissingAreCounted(t *testing.T) {
	rec := func(numbers ...int) (text string) {
		for _, n := range numbers {
			text += fmt.Sprintf(`{"time":"2026-01-01T00:00:00Z","mono_ns":1,"seq":%d,"op":"reap","device":0,"stream":0}`+"\n", n)
		}
		return text
	}
	for text, want := range map[string]uint64{rec(1, 2, 3): 0, rec(2, 1, 3): 0, rec(4, 5): 3, rec(1, 2, 9): 6, rec(1, 2, 3, 1, 2): 0, rec(0, 0): 0} {
		passed, err := alloctrace.DefaultLimits.EachEvent("f", strings.NewReader(text), func(string, oplog.Event) {})
		if trace := read(t, text); err != nil || passed.Missing != want || trace.Passed.Missing != want {
			t.Errorf("%s: %d and %d missing, want %d; %v", text, passed.Missing, trace.Passed.Missing, want, err)
		}
	}
}

// Of a packed file too, as far as it unpacks.
func TestATruncatedGzipIsReadAsFarAsItUnpacks(t *testing.T) {
	data := compress(t, []byte(logOf(20_000)))
	trace := must.Get(alloctrace.Read("f", bytes.NewReader(data[:len(data)*3/4])))(t)
	if n := len(trace.Rows); n < 5000 || n >= 20_000 || trace.Passed.Cut != n+1 {
		t.Errorf("%d rows, cut in %d", n, trace.Passed.Cut)
	}
}

// A rotated file has no header.
func TestRowsWithoutAHeaderAreRead(t *testing.T) {
	trace := read(t, row("allocate", "0x1", "1")+row("free", "0x1", "1"))
	if trace.Format != alloctrace.FormatRMM || len(trace.Rows) != 2 || trace.Rows[0].Line != 1 || trace.Rows[1].Line != 2 {
		t.Errorf("%+v", trace)
	}
}

func TestThePerThreadStreamIsAStreamAThread(t *testing.T) {
	const rest = ",00:00:00:000000,free,0x1,1,"
	rows := read(t, header+"1"+rest+"0x2\n2"+rest+"0x2\n1"+rest+"0x2\n1"+rest+"2\n2"+rest+"2\n1"+rest+"0x20\n2"+rest+"0x20\n").Rows
	var keys []alloctrace.StreamKey
	for _, r := range rows {
		keys = append(keys, r.StreamKey())
	}
	if keys[0] == keys[1] || keys[0] != keys[2] || keys[3] != keys[4] || keys[0] == keys[3] || keys[5] != keys[6] {
		t.Errorf("%+v", keys)
	}
}

// A budget refuses before the device is asked: the refusal is all that a log has.
func TestARefusalOfABudgetIsARecordedFailure(t *testing.T) {
	const refusal = `{"op":"refusal","mono_ns":1,"stream":3,"requested":9,"error":"no","kind":`
	rows := read(t, refusal+`"out_of_budget"}`+"\n"+refusal+`"out_of_budget","relieved":true}`+"\n"+refusal+`"out_of_memory"}`+"\n").Rows
	if len(rows) != 1 || rows[0].Action != alloctrace.AllocateFailure || rows[0].Bytes != 9 || rows[0].Error != "no" {
		t.Errorf("%+v", rows)
	}
}
