package logging

import (
	"io"

	"github.com/fencepost-gpu/fencepost/core"
)

// WriteJSON writes records to w as JSON lines, in the order given, as
// [NewJSONSink] does; see the package comment. It needs memory for a few
// hundred lines, however many there are.
func WriteJSON(w io.Writer, records []Record) error {
	lines := newJSONLines(w, processStart)
	for len(records) > 0 {
		n := min(chunk, len(records))
		if _, err := lines.write(records[:n]); err != nil {
			return err
		}
		records = records[n:]
	}
	return nil
}

// WriteJSON writes what the ring keeps as JSON lines, oldest first.
func (g *Ring) WriteJSON(w io.Writer) error { return WriteJSON(w, g.Snapshot()) }

// Events is the events of a [Ring.Snapshot].
func (g *Ring) Events() []core.Event { return Events(g.Snapshot()) }

// Events is the events of records.
func Events(records []Record) []core.Event {
	events := make([]core.Event, len(records))
	for i := range records {
		events[i] = records[i].Event
	}
	return events
}
