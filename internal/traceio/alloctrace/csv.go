package alloctrace

import (
	"encoding/csv"
	"fmt"
	"strings"
	"time"
)

// header is the first line of RMM's CSV.
const header = "Thread,Time,Action,Pointer,Size,Stream"

// columns are the fields of the header; errors name them.
var columns = strings.Split(header, ",")

const day = 24 * time.Hour

// csvRows parses rows of RMM's CSV. Its clock is the time of day, so it
// remembers the last one to notice a midnight.
type csvRows struct {
	line   strings.Reader // what fields reads, a line at a time
	fields *csv.Reader
	// streams are those that were named so far, as they are spelt.
	streams map[string]bool
	last    time.Duration
	offset  time.Duration
}

func newCSVRows() *csvRows {
	p := &csvRows{streams: map[string]bool{}}
	p.fields = csv.NewReader(&p.line)
	p.fields.FieldsPerRecord, p.fields.ReuseRecord = len(columns), true
	return p
}

// split returns the fields of one line, which are valid until the next call.
func (p *csvRows) split(line string) ([]string, error) {
	p.line.Reset(line)
	return p.fields.Read()
}

// mayBeCut is true for a row whose last column, a stream, is one that no row
// before it names.
func (p *csvRows) mayBeCut(line string) bool {
	fields, err := p.split(line)
	return err == nil && len(p.streams) > 0 && !p.streams[fields[len(fields)-1]]
}

// perThreadStream is the handle cudaStreamPerThread, as RMM writes handles.
// The number 2 is a stream like others.
const perThreadStream = "0x2"

// parse reads one line.
func (p *csvRows) parse(line string) (row Row, ok bool, err *ParseError) {
	fields, wrong := p.split(line)
	if wrong != nil {
		return Row{}, false, bad("row", line, "want the six columns "+header)
	}
	if row.Action, err = parseAction(columns[2], fields[2]); err != nil {
		return Row{}, false, err
	}
	var clock time.Duration
	if clock, err = parseClock(columns[1], fields[1]); err != nil {
		return Row{}, false, err
	}
	numbers := [...]struct {
		to    *uint64
		index int
		parse func(field, s string) (uint64, *ParseError)
	}{
		{&row.Thread, 0, parseID},
		{&row.Pointer, 3, parsePointer},
		{&row.Bytes, 4, parseDecimal},
		{&row.Stream, 5, parseID},
	}
	for _, n := range numbers {
		if *n.to, err = n.parse(columns[n.index], fields[n.index]); err != nil {
			return Row{}, false, err
		}
	}
	row.PerThread = fields[5] == perThreadStream
	p.streams[fields[5]] = true
	if row.Action == Allocate && row.Pointer == 0 && row.Bytes != 0 {
		return Row{}, false, bad(columns[3], fields[3], "an allocation of bytes needs a pointer")
	}
	if row.Time = p.unwrap(clock); row.Time > maxHours*time.Hour+day {
		return Row{}, false, bad(columns[1], fields[1], fmt.Sprintf("more midnights than %d hours have", maxHours))
	}
	return row, true, nil
}

func parseDecimal(field, s string) (uint64, *ParseError) { return parseUint(field, s, 10) }

func parseAction(field, s string) (Action, *ParseError) {
	for _, a := range [...]Action{Allocate, Free, AllocateFailure} {
		if s == a.String() {
			return a, nil
		}
	}
	return 0, bad(field, s, "unknown action, want allocate, free or allocate failure")
}

// unwrap turns times of day into one running time. Threads interleave, so a
// small step back is ordinary and stays; half a day back is a midnight, and
// half a day forward behind a midnight is a straggler from before it.
func (p *csvRows) unwrap(clock time.Duration) time.Duration {
	if p.last >= day || clock >= day {
		// Offsets from the start of a long recording, not times of day.
		p.last = clock
		return p.offset + clock
	}
	if p.offset > 0 && clock-p.last > day/2 {
		return p.offset - day + clock
	}
	if p.last-clock > day/2 {
		p.offset += day
	}
	p.last = clock
	return p.offset + clock
}
