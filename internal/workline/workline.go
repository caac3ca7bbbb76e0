// Package workline is how a line of the log says what the device did: decorators/logging writes it, and those who read
// logs read it.
package workline

import (
	"encoding/hex"
	"fmt"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
)

// Line is what a record of an OpDevice has beside its time, duration, stream and launch. Times are in nanoseconds.
type Line struct {
	// Prepared and Reached are how long before the work began the host prepared it, and the device came to it.
	Prepared     int64  `json:"prepared_ns"`
	Reached      int64  `json:"reached_ns"`
	Bound        int64  `json:"bound_ns"`
	On           int    `json:"on"`
	Weight       uint64 `json:"weight"`
	Waits        []Wait `json:"waits,omitempty"`
	Unattributed int64  `json:"unattributed_ns,omitempty"`
}

// Wait is a [oplog.DeviceWait].
type Wait struct {
	Stream     uint64 `json:"stream"`
	LaunchID   uint64 `json:"launch_id,omitempty"`
	Launch     string `json:"launch,omitempty"`
	Block      uint64 `json:"block,omitempty"`
	TraceID    string `json:"trace_id,omitempty"`
	SpanID     string `json:"span_id,omitempty"`
	Generation uint64 `json:"generation"`
	Tag        string `json:"tag"`
	Access     string `json:"access,omitempty"`
	Own        string `json:"own,omitempty"`
	// Held is -1 if it is not known for this wait alone.
	Held int64 `json:"held_ns"`
}

// Of is the line of w.
func Of(w *oplog.DeviceWork) Line {
	l := Line{Prepared: w.Began.Sub(w.Prepared).Nanoseconds(), Reached: w.Began.Sub(w.Reached).Nanoseconds(), Bound: w.Bound.Nanoseconds(), On: w.On,
		Weight: w.Weight, Unattributed: w.Unattributed.Nanoseconds()}
	for i := range w.Waits {
		of := &w.Waits[i]
		wait := Wait{Stream: uint64(of.Stream), LaunchID: of.For.Launch, Launch: of.Launch, Block: uint64(of.For.Block),
			Generation: uint64(of.Generation), Tag: string(of.Tag), Access: accessText(of.Access), Own: accessText(of.Own), Held: of.Held.Nanoseconds()}
		if of.Held < 0 {
			wait.Held = -1
		}
		if !of.Span.IsZero() {
			wait.TraceID, wait.SpanID = hex.EncodeToString(of.Span.TraceID[:]), hex.EncodeToString(of.Span.SpanID[:])
		}
		l.Waits = append(l.Waits, wait)
	}
	return l
}

// The most that a line may say: a year, and more waits than there are streams.
const (
	longest   = int64(365 * 24 * time.Hour)
	mostWaits = 1 << 16
)

// Into reads the line into a work that has its launch, stream, span, begin and end.
func (l *Line) Into(w *oplog.DeviceWork) error {
	w.Prepared, w.Reached = w.Began.Add(-time.Duration(l.Prepared)), w.Began.Add(-time.Duration(l.Reached))
	w.Bound, w.On, w.Weight, w.Unattributed = time.Duration(l.Bound), l.On, l.Weight, time.Duration(l.Unattributed)
	for _, ns := range []int64{max(l.Prepared, -l.Prepared), l.Reached, l.Bound, l.Unattributed, int64(len(l.Waits)) * (longest / mostWaits)} {
		if ns < 0 || ns > longest {
			return fmt.Errorf("a time is negative or longer than a year, or there are more than %d waits", mostWaits)
		}
	}
	for _, from := range l.Waits {
		span, err := Span(from.TraceID, from.SpanID)
		if err != nil {
			return err
		}
		access, known := Access(from.Access)
		own, ownKnown := Access(from.Own)
		if !known || !ownKnown || from.Held > longest {
			return fmt.Errorf("a wait has an access that is not read, write or read_write, or is longer than a year")
		}
		w.Waits = append(w.Waits, oplog.DeviceWait{Stream: core.StreamID(from.Stream), For: core.WaitRef{Launch: from.LaunchID, Block: core.Generation(from.Block)},
			Launch: from.Launch, Span: span, Generation: core.Generation(from.Generation), Tag: core.Tag(from.Tag), Access: access, Own: own, Held: time.Duration(max(-1, from.Held))})
	}
	return nil
}

// Span reads the numbers of a trace and a span in hexadecimal; empty ones are none.
func Span(trace, span string) (s core.SpanRef, err error) {
	for _, part := range []struct {
		text string
		to   []byte
	}{{trace, s.TraceID[:]}, {span, s.SpanID[:]}} {
		if part.text == "" {
			continue
		}
		if n, err := hex.Decode(part.to, []byte(part.text[:min(len(part.text), 2*len(part.to))])); err != nil || n < len(part.to) || len(part.text) > 2*n {
			return core.SpanRef{}, fmt.Errorf("%q is not the number of a trace or span: %d hexadecimal digits", part.text, 2*len(part.to))
		}
	}
	return s, nil
}

// Access reads an access of a log.
func Access(text string) (a core.Access, known bool) {
	a, known = accesses[text]
	return a, known
}

var accesses = map[string]core.Access{"": 0, core.Read.String(): core.Read, core.Write.String(): core.Write, core.ReadWrite.String(): core.ReadWrite}

func accessText(a core.Access) string {
	if a == 0 {
		return ""
	}
	return a.String()
}
