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

	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
)

// FuzzRead feeds any bytes. Whatever comes in, the answer is a valid trace or
// a ParseError, the same whether the bytes are compressed or not.
func FuzzRead(f *testing.F) {
	for _, c := range parseErrors {
		f.Add([]byte(c.text))
	}
	f.Add([]byte(log))
	f.Add(compress(f, []byte(log)))
	f.Add(compress(f, []byte(log))[:40])
	f.Add([]byte(header + row("allocate", "0x1", "0") + strings.Repeat("x", alloctrace.MaxLine+1) + "\n" + row("free", "0x1", "0")))
	f.Add([]byte(header + "1,99999:59:59:999999,allocate,0xffffffffffffffff,18446744073709551615,18446744073709551615\n"))
	f.Add([]byte("{" + strings.Repeat(" ", 3*alloctrace.MaxLine)))
	f.Fuzz(func(t *testing.T, data []byte) {
		trace, err := alloctrace.Read("f", bytes.NewReader(data))
		checkOutcome(t, trace, err)
		if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
			return
		}
		again, againErr := alloctrace.Read("f", bytes.NewReader(compress(t, data)))
		if diff := cmp.Diff(trace, again); diff != "" {
			t.Errorf("compressed differs: %s", diff)
		}
		if fmt.Sprint(err) != fmt.Sprint(againErr) {
			t.Errorf("plain: %v; compressed: %v", err, againErr)
		}
	})
}

func checkOutcome(t *testing.T, trace *alloctrace.Trace, err error) {
	t.Helper()
	if err != nil {
		var parseErr *alloctrace.ParseError
		if !errors.As(err, &parseErr) || parseErr.File != "f" || parseErr.Field == "" || parseErr.Reason == "" {
			t.Fatalf("not a complete ParseError: %#v", err)
		}
		return
	}
	last := 0
	for _, row := range trace.Rows {
		if row.Line <= last || row.Time < 0 || row.Action < alloctrace.Allocate || row.Action > alloctrace.AllocateFailure {
			t.Fatalf("invalid row behind line %d: %+v", last, row)
		}
		last = row.Line
	}
}

// FuzzCSVRoundTrip writes a row as RMM does and expects it back.
func FuzzCSVRoundTrip(f *testing.F) {
	f.Add(uint64(1), uint64(0x7f00), uint64(256), uint64(0), int64(0), byte(0))
	f.Add(uint64(math.MaxUint64), uint64(1), uint64(math.MaxUint64), uint64(3), int64(86_399_999_999), byte(1))
	f.Add(uint64(0), uint64(0), uint64(0), uint64(0), int64(1), byte(2))
	f.Fuzz(func(t *testing.T, thread, pointer, size, stream uint64, micros int64, kind byte) {
		want := alloctrace.Row{
			Line: 2, Thread: thread, Pointer: pointer | 1, Bytes: size, Stream: stream,
			Time:   time.Duration(uint64(micros)%86_400_000_000) * time.Microsecond,
			Action: alloctrace.Action(kind%3) + alloctrace.Allocate,
		}
		want.PerThread = stream == 2 && kind&8 != 0
		trace := must.Get(alloctrace.Read("f", strings.NewReader(header+formatRow(want, kind))))(t)
		if diff := cmp.Diff([]alloctrace.Row{want}, trace.Rows); diff != "" {
			t.Error(diff)
		}
	})
}

// formatRow varies what versions of RMM vary: the sign before the
// microseconds and the form of the stream.
func formatRow(r alloctrace.Row, kind byte) string {
	sign, stream := ":", "%d"
	if kind&8 != 0 {
		sign, stream = ".", "%#x"
	}
	clock := fmt.Sprintf("%02d:%02d:%02d%s%06d", r.Time/time.Hour, r.Time/time.Minute%60, r.Time/time.Second%60, sign, r.Time/time.Microsecond%1e6)
	return fmt.Sprintf("%d,%s,%s,%#x,%d,"+stream+"\n", r.Thread, clock, r.Action, r.Pointer, r.Bytes, r.Stream)
}
