package logging

import (
	"io"
	"strconv"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

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

// csvLines writes RMM's CSV.
type csvLines struct {
	lines lineWriter
	start time.Time
}

func newCSVLines(w io.Writer, start time.Time) *csvLines {
	return &csvLines{lines: lineWriter{w: w, preface: []byte(CSVHeader + "\n")}, start: start}
}

func (c *csvLines) accepts(o outcome) bool {
	return o.op == core.OpAllocate || o.op == core.OpDeallocate && !o.failed
}

func (c *csvLines) write(records []Record) (int, error) {
	return c.lines.writeLines(records, c.appendRow)
}

func (c *csvLines) appendRow(b []byte, r *Record) []byte {
	e := &r.Event
	b = appendOffset(append(b, "0,"...), e.Time.Sub(c.start))
	b = append(append(b, ','), csvAction(e)...)
	b = strconv.AppendUint(append(b, ",0x"...), e.Block.Ptr, 16)
	b = strconv.AppendUint(append(b, ','), e.Requested, 10)
	return strconv.AppendUint(append(b, ','), uint64(e.Stream), 10)
}

func csvAction(e *core.Event) string {
	switch {
	case e.Op == core.OpDeallocate:
		return "free"
	case e.Err != nil:
		return "allocate failure"
	}
	return "allocate"
}

// appendOffset writes d as HH:MM:SS:microseconds; what began before the start
// began at it.
func appendOffset(b []byte, d time.Duration) []byte {
	us := uint64(max(d, 0) / time.Microsecond)
	b = appendPadded(b, us/3_600_000_000, 2)
	b = appendPadded(append(b, ':'), us/60_000_000%60, 2)
	b = appendPadded(append(b, ':'), us/1_000_000%60, 2)
	return appendPadded(append(b, ':'), us%1_000_000, 6)
}

// appendPadded writes n with zeros in front, to at least width digits.
func appendPadded(b []byte, n uint64, width int) []byte {
	for limit := uint64(10); width > 1; width, limit = width-1, limit*10 {
		if n < limit {
			b = append(b, '0')
		}
	}
	return strconv.AppendUint(b, n, 10)
}
