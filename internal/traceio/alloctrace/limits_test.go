package alloctrace_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
)

// long is a line of n bytes, its end included.
func long(n int) string { return strings.Repeat("x", n-1) + "\n" }

// A row that is too long, whatever is in it, is counted, and those around it are
// read. One that just fits is a malformed row.
func TestARowThatIsTooLongIsSkippedAndCounted(t *testing.T) {
	const most = alloctrace.MaxLine
	for name, c := range map[string]struct {
		text  string
		lines []int
		long  alloctrace.Passed
	}{
		"in the middle":      {header + row("free", "0x1", "1") + long(most+1) + row("free", "0x2", "1"), []int{2, 4}, alloctrace.Passed{TooLong: 1, FirstTooLong: 3}},
		"first, and again":   {header + long(3*most) + row("free", "0x1", "1") + long(2*most), []int{3}, alloctrace.Passed{TooLong: 2, FirstTooLong: 2}},
		"at the end, cut":    {header + row("free", "0x1", "1") + strings.Repeat("x", 5*most), []int{2}, alloctrace.Passed{TooLong: 1, FirstTooLong: 3}},
		"a log's first line": {`{"tag":"` + long(most+1) + `{"op":"deallocate","mono_ns":1,"stream":0,"generation":1}`, []int{2}, alloctrace.Passed{TooLong: 1, FirstTooLong: 1}},
	} {
		for _, data := range [][]byte{[]byte(c.text), compress(t, []byte(c.text))} {
			trace, err := alloctrace.Read("f", bytes.NewReader(data))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			var lines []int
			for _, r := range trace.Rows {
				lines = append(lines, r.Line)
			}
			if !slices.Equal(lines, c.lines) || trace.Passed != c.long {
				t.Errorf("%s: rows of lines %v and %+v, want %v and %+v", name, lines, trace.Passed, c.lines, c.long)
			}
		}
	}
	wantError(t, header+long(most), `f:2: row: want the six columns Thread,Time,Action,Pointer,Size,Stream, got "`+strings.Repeat("x", 80)+`..."`)
	wantError(t, header+long(most+1)+long(most+1), "f:2: row: longer than 65536 bytes, and so is every other row")
	wantError(t, "{"+strings.Repeat("x", 2*most), "f:1: row: longer than 65536 bytes, and so is every other row")
	wantError(t, long(most+1), "f:1: header: a first line of more than 65536 bytes: neither is this RMM's CSV nor JSON lines"+supported)
}

func TestALineOfALogThatIsTooLongIsSkippedAndCounted(t *testing.T) {
	const good = `{"op":"reap","time":"2026-01-01T00:00:00Z","mono_ns":1,"stream":0}` + "\n"
	var events []oplog.Event
	passed, err := alloctrace.DefaultLimits.EachEvent("f", strings.NewReader(good+`{"tag":"`+long(70_000)+good), func(line string, e oplog.Event) {
		if line+"\n" != good {
			t.Errorf("got line %q", line)
		}
		events = append(events, e)
	})
	if err != nil || len(events) != 2 || passed != (alloctrace.Passed{TooLong: 1, FirstTooLong: 2}) {
		t.Errorf("%d events, %+v, %v", len(events), passed, err)
	}
}

// What unpacks to more than the limits is refused where it does, before the rest
// is read.
func TestAFileBeyondTheLimitsIsRefusedWithItsLine(t *testing.T) {
	rows := strings.Repeat(row("free", "0x1", "1"), 100)
	size := uint64(len(header) + len(rows))
	for _, c := range []struct {
		limits alloctrace.Limits
		want   string
	}{
		{alloctrace.Limits{Rows: 100, Bytes: size}, ""},
		{alloctrace.Limits{Rows: 99, Bytes: size}, "f:101: file: more than 99 rows, which is the limit (--max-rows)"},
		{alloctrace.Limits{Rows: 100, Bytes: size - 1}, fmt.Sprintf("f:101: file: more than %d bytes unpacked, which is the limit (--max-bytes)", size-1)},
		{alloctrace.Limits{Rows: 100, Bytes: 50}, "f:2: file: more than 50 bytes unpacked, which is the limit (--max-bytes)"},
	} {
		for _, data := range [][]byte{[]byte(header + rows), compress(t, []byte(header+rows))} {
			trace, err := c.limits.Read("f", bytes.NewReader(data))
			if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want || (trace == nil) != (err != nil) {
				t.Errorf("%+v: got %v, want %s", c.limits, err, c.want)
			}
		}
	}
	_, err := alloctrace.Limits{Rows: 3, Bytes: 1 << 20}.Read("f", strings.NewReader(strings.Repeat(`{"op":"reap"}`+"\n", 4)))
	if want := "f:4: file: more than 3 rows, which is the limit (--max-rows)"; err == nil || err.Error() != want {
		t.Errorf("records that replay skips: %v, want %s", err, want)
	}
}

// endless is a file without an end, and counts what is read of it.
type endless struct {
	text string
	read uint64
}

func (e *endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		n += copy(p[n:], e.text[int(e.read+uint64(n))%len(e.text):])
	}
	e.read += uint64(n)
	return n, nil
}

func TestAFileWithoutAnEndIsReadNoFurtherThanItsLimits(t *testing.T) {
	for _, text := range []string{`{"op":"reap"}` + "\n", "{", "\n{"} {
		file := &endless{text: text}
		limits := alloctrace.Limits{Rows: 1 << 30, Bytes: 1 << 20}
		if _, err := limits.Read("f", io.MultiReader(strings.NewReader(`{"op":"reap"}`+"\n"), file)); err == nil || file.read > limits.Bytes+2*alloctrace.MaxLine {
			t.Errorf("%q: %d bytes were read, %v", text, file.read, err)
		}
	}
}

// Times of day that go round and round would be more than a time can count.
func TestAClockThatGoesRoundForEverIsRefused(t *testing.T) {
	var text strings.Builder
	text.WriteString(header)
	for range 5000 {
		for _, hour := range []int{0, 11, 22} {
			fmt.Fprintf(&text, "1,%02d:00:00:000000,free,0x1,1,0\n", hour)
		}
	}
	trace, err := alloctrace.Read("f", strings.NewReader(text.String()))
	var wrong *alloctrace.ParseError
	if !errors.As(err, &wrong) || wrong.Field != "Time" {
		last := time.Duration(0)
		if trace != nil {
			last = trace.Rows[len(trace.Rows)-1].Time
		}
		t.Errorf("the last row is %v after the first; %v", last, err)
	}
}
