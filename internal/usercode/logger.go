package usercode

import (
	"context"
	"log/slog"
)

// Logger is l behind [Call]; nil if that is nil.
func Logger(l *slog.Logger) *slog.Logger {
	if l == nil {
		return nil
	}
	return slog.New(guardedHandler{l.Handler()})
}

// guardedHandler is a handler of the program's. A record that it panics over is lost.
type guardedHandler struct{ next slog.Handler }

const loggerCode = "the logger's handler"

func (h guardedHandler) Enabled(ctx context.Context, level slog.Level) (enabled bool) {
	Call(loggerCode, func() { enabled = h.next.Enabled(ctx, level) })
	return enabled
}

func (h guardedHandler) Handle(ctx context.Context, r slog.Record) (err error) {
	Call(loggerCode, func() { err = h.next.Handle(ctx, r) })
	return err
}

func (h guardedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := slog.Handler(h)
	Call(loggerCode, func() { with = guardedHandler{h.next.WithAttrs(attrs)} })
	return with
}

func (h guardedHandler) WithGroup(name string) slog.Handler {
	with := slog.Handler(h)
	Call(loggerCode, func() { with = guardedHandler{h.next.WithGroup(name)} })
	return with
}
