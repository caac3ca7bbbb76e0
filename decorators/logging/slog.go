package logging

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"strconv"

	"github.com/fencepost-gpu/fencepost/core"
)

// slogRecords passes records to a slog handler. The handler is called
// directly, because a Logger swallows its errors.
type slogRecords struct {
	handler slog.Handler
	attrs   []slog.Attr
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

// slogLevel is how much a record matters to whoever reads the service's log.
func slogLevel(o outcome) slog.Level {
	switch {
	case o.relieved:
		return slog.LevelInfo
	case o.op == core.OpRefusal:
		return slog.LevelWarn
	case o.failed:
		return slog.LevelError
	case Operations.ops().has(o.op):
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

func (s *slogRecords) record(r *Record) slog.Record {
	e := &r.Event
	s.attrs = append(s.attrs[:0],
		slog.Uint64("seq", r.Seq),
		slog.Int("device", e.Ordinal),
		slog.Uint64("stream", uint64(e.Stream)),
		slog.String("tag", string(e.Tag)),
		slog.Uint64("requested", e.Requested),
		slog.Uint64("bytes", e.Bytes),
		slog.Duration("duration", e.Duration),
		slog.String("layer", e.Layer))
	if e.Block.Generation != 0 {
		s.attrs = append(s.attrs,
			slog.String("ptr", "0x"+strconv.FormatUint(e.Block.Ptr, 16)),
			slog.Uint64("generation", uint64(e.Block.Generation)))
	}
	s.addLaunch(e)
	s.addSpan(e)
	s.addResult(e)
	out := slog.NewRecord(e.Time, slogLevel(outcomeOf(e)), "gpu memory "+e.Op.String(), 0)
	out.AddAttrs(s.attrs...)
	return out
}

func (s *slogRecords) addLaunch(e *core.Event) {
	if !launchOps.has(e.Op) {
		return
	}
	s.attrs = append(s.attrs, slog.String("launch", e.Launch))
	if e.Access != 0 {
		s.attrs = append(s.attrs, slog.String("access", e.Access.String()))
	}
	s.attrs = append(s.attrs, slog.Int("uses", e.Uses), slog.Int("waits", e.Waits), slog.Int("elided", e.Elided))
}

func (s *slogRecords) addSpan(e *core.Event) {
	if !e.Span.IsZero() {
		s.attrs = append(s.attrs,
			slog.String(core.TraceIDKey, hex.EncodeToString(e.Span.TraceID[:])),
			slog.String(core.SpanIDKey, hex.EncodeToString(e.Span.SpanID[:])),
			slog.String(core.TraceKey, e.Trace()))
	}
}

func (s *slogRecords) addResult(e *core.Event) {
	if e.Err != nil {
		s.attrs = append(s.attrs, slog.String("error", errorText(e.Err)), slog.String("kind", errorKind(e.Err)))
	}
	if e.Relieved {
		s.attrs = append(s.attrs, slog.Bool("relieved", true))
	}
}
