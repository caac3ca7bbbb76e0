package logging

import (
	"context"
	"errors"
	"log/slog"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
)

// slogRecords passes records to a slog handler. The handler is called
// directly, because a Logger swallows its errors.
type slogRecords struct {
	handler slog.Handler
	fields  []slog.Attr
}

func (s *slogRecords) accepts(o outcome) bool {
	return s.handler.Enabled(context.Background(), slogLevel(o))
}

func (s *slogRecords) write(records []Record) (int, error) {
	written := 0
	var errs error
	for i := range records {
		if err := s.handler.Handle(contextOf(&records[i]), s.record(&records[i])); err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		written++
	}
	return written, errs
}

// contextOf is what a handler that knows about traces looks at; see
// telemetry.NewLogHandler.
func contextOf(r *Record) context.Context {
	if r.Event.Span.IsZero() {
		return context.Background()
	}
	return core.WithSpan(context.Background(), r.Event.Span)
}

// slogLevel is how much a record matters to a reader of the service's log.
func slogLevel(o outcome) slog.Level {
	switch {
	case o.relieved:
		return slog.LevelInfo
	case o.op == oplog.OpRefusal:
		return slog.LevelWarn
	case o.failed:
		return slog.LevelError
	case operations.has(o.op):
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

func (s *slogRecords) record(r *Record) slog.Record {
	e := &r.Event
	out := slog.NewRecord(e.Time, slogLevel(outcomeOf(e)), "gpu memory "+e.Op.String(), 0)
	s.fields = r.fields(s.fields[:0])
	said := s.fields[:0]
	for _, f := range s.fields {
		switch f.Key {
		case "op", "launch_id", "waited_launches", "waited_blocks": // in the message, or for programs
		case "duration_ns":
			said = append(said, slog.Duration("duration", e.Duration))
		default:
			said = append(said, f)
		}
	}
	out.AddAttrs(said...)
	return out
}
