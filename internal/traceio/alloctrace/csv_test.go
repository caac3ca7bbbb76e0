package alloctrace_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
)

const header = "Thread,Time,Action,Pointer,Size,Stream\n"

func read(t *testing.T, text string) *alloctrace.Trace {
	t.Helper()
	return must.Get(alloctrace.Read("t.csv", strings.NewReader(text)))(t)
}

func TestCSVRowsOfEveryKind(t *testing.T) {
	trace := read(t, header+
		"7,01:02:03:000004,allocate,0x7f00,256,0\n"+
		"18446744073709551615,01:02:03.000005,allocate failure,(nil),18446744073709551615,0x2a\r\n"+
		"7,01:02:03.999999,free,0xFF,256,3\n")
	base := time.Hour + 2*time.Minute + 3*time.Second
	want := []alloctrace.Row{
		{Line: 2, Thread: 7, Time: base + 4*time.Microsecond, Action: alloctrace.Allocate, Pointer: 0x7f00, Bytes: 256},
		{Line: 3, Thread: 1<<64 - 1, Time: base + 5*time.Microsecond, Action: alloctrace.AllocateFailure, Bytes: 1<<64 - 1, Stream: 42},
		{Line: 4, Thread: 7, Time: base + 999999*time.Microsecond, Action: alloctrace.Free, Pointer: 0xff, Bytes: 256, Stream: 3},
	}
	if diff := cmp.Diff(want, trace.Rows); diff != "" {
		t.Error(diff)
	}
	if trace.Format != alloctrace.FormatRMM || trace.Format.String() != "rmm-csv" {
		t.Errorf("format %v", trace.Format)
	}
}

func TestCSVFieldsMayBeQuoted(t *testing.T) {
	trace := read(t, `"Thread","Time",Action,"Pointer","Size","Stream"`+"\n"+`"7","01:02:03:000004","allocate","0x7f00","256","0"`+"\r\n")
	want := []alloctrace.Row{{Line: 2, Thread: 7, Time: time.Hour + 2*time.Minute + 3*time.Second + 4*time.Microsecond, Action: alloctrace.Allocate, Pointer: 0x7f00, Bytes: 256}}
	if diff := cmp.Diff(want, trace.Rows); diff != "" {
		t.Error(diff)
	}
}

func TestCSVLastLineNeedsNoNewline(t *testing.T) {
	if n := len(read(t, header+"0,00:00:00:000000,free,0x1,1,0").Rows); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
}

func TestCSVHeaderAloneIsAnEmptyTrace(t *testing.T) {
	if n := len(read(t, header).Rows); n != 0 {
		t.Errorf("%d rows, want none", n)
	}
}

func TestCSVZeroBytesWithoutPointer(t *testing.T) {
	trace := read(t, header+"0,00:00:00:000000,allocate,(nil),0,0\n0,00:00:00:000001,free,(nil),0,0\n")
	if !trace.Rows[0].IsEmpty() || !trace.Rows[1].IsEmpty() {
		t.Errorf("rows are not empty: %+v", trace.Rows)
	}
}

func TestCSVTimesAcrossMidnight(t *testing.T) {
	cases := map[string]struct {
		clocks []string
		want   []time.Duration
	}{
		"midnight and a straggler": {
			[]string{"23:59:59:900000", "00:00:00:100000", "23:59:59:950000", "00:00:01:000000"},
			[]time.Duration{day - 100*time.Millisecond, day + 100*time.Millisecond, day - 50*time.Millisecond, day + time.Second},
		},
		"small steps back": {
			[]string{"10:00:00:000002", "10:00:00:000001"},
			[]time.Duration{10*time.Hour + 2*time.Microsecond, 10*time.Hour + time.Microsecond},
		},
		"offsets of more than a day": {
			[]string{"23:00:00:000000", "24:00:00:000000", "100:00:00:000000"},
			[]time.Duration{23 * time.Hour, day, 100 * time.Hour},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var text strings.Builder
			text.WriteString(header)
			for _, clock := range c.clocks {
				text.WriteString("0," + clock + ",free,0x1,1,0\n")
			}
			var got []time.Duration
			for _, row := range read(t, text.String()).Rows {
				got = append(got, row.Time)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

const day = 24 * time.Hour
