package logging

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/fencepost-gpu/fencepost/core/oplog"
)

// textLines is an [output] that writes a line of text for each record.
type textLines struct {
	w io.Writer
	// takes is what accepts says.
	takes func(outcome) bool
	// appendLine appends a record's line, without its end.
	appendLine func([]byte, *Record) []byte
	// preface goes out before the next line: a header, or what remains to be
	// written after a write that failed.
	preface []byte
	buf     []byte
}

func (l *textLines) accepts(o outcome) bool { return l.takes(o) }

// write returns how many lines got through whole. After a write that failed in
// the middle of a line the next one starts on a fresh line, so that a reader
// loses one line and not two.
func (l *textLines) write(records []Record) (int, error) {
	front := len(l.preface)
	l.buf = append(l.buf[:0], l.preface...)
	for i := range records {
		l.buf = append(l.appendLine(l.buf, &records[i]), '\n')
	}
	buf := l.buf
	if len(buf) == 0 {
		return 0, nil
	}
	n, err := l.w.Write(buf)
	if err == nil && n < len(buf) {
		err = io.ErrShortWrite
	}
	if err == nil {
		l.preface = nil
		return len(records), nil
	}
	n = max(0, min(n, len(buf)))
	if n < front {
		l.preface = l.preface[n:]
		return 0, err
	}
	l.preface = nil
	if n > 0 && buf[n-1] != '\n' {
		l.preface = []byte{'\n'}
	}
	return bytes.Count(buf[front:n], []byte{'\n'}), err
}

// newJSONLines writes one JSON object a line; the package comment describes it. start is
// the zero of mono_ns.
func newJSONLines(w io.Writer, start time.Time) *textLines {
	var fields []slog.Attr
	return &textLines{w: w, takes: func(outcome) bool { return true }, appendLine: func(b []byte, r *Record) []byte {
		at := r.Event.Time
		b = at.UTC().AppendFormat(append(b, `{"time":"`...), time.RFC3339Nano)
		b = strconv.AppendInt(append(b, `","mono_ns":`...), int64(max(at.Sub(start), 0)), 10)
		fields = r.fields(fields[:0])
		for _, f := range fields {
			b = appendField(b, f)
		}
		return append(b, '}')
	}}
}

func appendField(b []byte, f slog.Attr) []byte {
	b = append(append(append(b, `,"`...), f.Key...), `":`...)
	switch v := f.Value; v.Kind() {
	case slog.KindString:
		return appendText(b, v.String())
	case slog.KindInt64:
		return strconv.AppendInt(b, v.Int64(), 10)
	case slog.KindUint64:
		return strconv.AppendUint(b, v.Uint64(), 10)
	case slog.KindBool:
		return strconv.AppendBool(b, v.Bool())
	default:
		text, err := json.Marshal(v.Any())
		if err != nil { // they are numbers, texts and lists of them
			return appendText(b, err.Error())
		}
		return append(b, text...)
	}
}

// appendText writes a JSON string. Bytes that are not UTF-8 become the
// replacement character.
func appendText(b []byte, s string) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', byte(c))
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&0xf])
		default:
			b = utf8.AppendRune(b, c)
		}
	}
	return append(b, '"')
}

// CSVHeader is the first line of what [NewCSVSink] writes. The columns:
//
//   - Thread: always 0. Goroutines move between threads and have no number.
//   - Time: when the operation began, counted from the making of the sink, as
//     HH:MM:SS:microseconds; hours go on beyond 23.
//   - Action: "allocate", "free" or "allocate failure".
//   - Pointer: the device address, 0x0 for a failure.
//   - Size: the bytes that the outermost caller asked for, without padding.
//   - Stream: the stream's number in decimal, 0 for the default stream.
//
// There are rows for allocations, failed allocations and successful frees and
// for nothing else; a failed free leaves the block live. Rows are ordered by
// sequence number, so a reused address is freed before it is allocated, unless
// a free takes longer than the queue's delay. There is no device column: use
// one file for each device.
const CSVHeader = "Thread,Time,Action,Pointer,Size,Stream"

func newCSVLines(w io.Writer, start time.Time) *textLines {
	return &textLines{w: w, preface: []byte(CSVHeader + "\n"), takes: hasRow,
		appendLine: func(b []byte, r *Record) []byte { return appendRow(b, &r.Event, start) }}
}

func hasRow(o outcome) bool {
	return o.op == oplog.OpAllocate || o.op == oplog.OpDeallocate && !o.failed
}

// appendRow appends the row of e; what began before the start began at it.
func appendRow(b []byte, e *oplog.Event, start time.Time) []byte {
	us := max(e.Time.Sub(start), 0) / time.Microsecond
	return fmt.Appendf(b, "0,%02d:%02d:%02d:%06d,%s,%#x,%d,%d",
		us/3_600_000_000, us/60_000_000%60, us/1_000_000%60, us%1_000_000, csvAction(e), e.Block.Ptr, e.Requested, e.Stream)
}

func csvAction(e *oplog.Event) string {
	switch {
	case e.Op == oplog.OpDeallocate:
		return "free"
	case e.Err != nil:
		return "allocate failure"
	}
	return "allocate"
}
