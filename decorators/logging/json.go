package logging

import (
	"encoding/hex"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/fencepost-gpu/fencepost/core"
)

// jsonLines writes one JSON object a line; the package comment describes it.
type jsonLines struct {
	lines lineWriter
	// start is the zero of mono_ns.
	start time.Time
}

func newJSONLines(w io.Writer, start time.Time) *jsonLines {
	return &jsonLines{lines: lineWriter{w: w}, start: start}
}

func (*jsonLines) accepts(outcome) bool { return true }

func (j *jsonLines) write(records []Record) (int, error) {
	return j.lines.writeLines(records, j.appendObject)
}

func (j *jsonLines) appendObject(b []byte, r *Record) []byte {
	e := &r.Event
	b = append(b, `{"time":"`...)
	b = e.Time.UTC().AppendFormat(b, time.RFC3339Nano)
	b = appendInt(b, `","mono_ns":`, int64(max(e.Time.Sub(j.start), 0)))
	b = appendUint(b, `,"seq":`, r.Seq)
	b = appendText(b, `,"op":`, e.Op.String())
	b = appendInt(b, `,"device":`, int64(e.Ordinal))
	b = appendUint(b, `,"stream":`, uint64(e.Stream))
	b = appendText(b, `,"tag":`, string(e.Tag))
	b = appendUint(b, `,"requested":`, e.Requested)
	b = appendUint(b, `,"bytes":`, e.Bytes)
	b = appendInt(b, `,"duration_ns":`, int64(e.Duration))
	b = appendText(b, `,"layer":`, e.Layer)
	b = appendBlock(b, e.Block)
	b = appendLaunch(b, e)
	b = appendSpan(b, e)
	b = appendResult(b, e)
	return append(b, '}')
}

func appendBlock(b []byte, id core.BlockID) []byte {
	if id.Generation == 0 {
		return b
	}
	b = strconv.AppendUint(append(b, `,"ptr":"0x`...), id.Ptr, 16)
	return appendUint(b, `","generation":`, uint64(id.Generation))
}

func appendLaunch(b []byte, e *core.Event) []byte {
	if !launchOps.has(e.Op) {
		return b
	}
	b = appendText(b, `,"launch":`, e.Launch)
	if e.LaunchID != 0 {
		b = appendUint(b, `,"launch_id":`, e.LaunchID)
	}
	if e.Access != 0 {
		b = appendText(b, `,"access":`, e.Access.String())
	}
	b = appendInt(b, `,"uses":`, int64(e.Uses))
	b = appendInt(b, `,"waits":`, int64(e.Waits))
	b = appendInt(b, `,"elided":`, int64(e.Elided))
	b = appendRefs(b, `,"waited_launches":`, &e.WaitedFor, core.WaitRef.Launch)
	return appendRefs(b, `,"waited_blocks":`, &e.WaitedFor, func(w core.WaitRef) (uint64, bool) {
		g, ok := w.Block()
		return uint64(g), ok
	})
}

// appendRefs lists those of refs that number has a number for, if any.
func appendRefs(b []byte, key string, refs *[4]core.WaitRef, number func(core.WaitRef) (uint64, bool)) []byte {
	sep := key + "["
	for _, ref := range refs {
		if n, ok := number(ref); ok {
			b, sep = appendUint(b, sep, n), ","
		}
	}
	if sep == "," {
		b = append(b, ']')
	}
	return b
}

func appendSpan(b []byte, e *core.Event) []byte {
	span := &e.Span
	if span.IsZero() {
		return b
	}
	b = hex.AppendEncode(append(b, `,"`+core.TraceIDKey+`":"`...), span.TraceID[:])
	b = hex.AppendEncode(append(b, `","`+core.SpanIDKey+`":"`...), span.SpanID[:])
	b = append(append(b, `","`+core.TraceKey+`":"`...), e.Trace()...)
	return append(b, '"')
}

func appendResult(b []byte, e *core.Event) []byte {
	if e.Err != nil {
		b = appendText(b, `,"error":`, errorText(e.Err))
		b = appendText(b, `,"kind":`, errorKind(e.Err))
	}
	if e.Relieved {
		b = append(b, `,"relieved":true`...)
	}
	return b
}

func appendInt(b []byte, key string, n int64) []byte {
	return strconv.AppendInt(append(b, key...), n, 10)
}

func appendUint(b []byte, key string, n uint64) []byte {
	return strconv.AppendUint(append(b, key...), n, 10)
}

// appendText writes a JSON string. Bytes that are not UTF-8 become the
// replacement character.
func appendText(b []byte, key, s string) []byte {
	const digits = "0123456789abcdef"
	b = append(append(b, key...), '"')
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
