package telemetry

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
)

// loggedSuspects is how many of a finding's suspects are in its log record. The
// incident file has them all.
const loggedSuspects = 3

// logFinding writes the one record of a finding. Names and order of the attributes
// are a promise; docs/guard.md has them.
func logFinding(logger *slog.Logger, f core.Finding) {
	ctx := context.Background()
	if span := spanOf(&f); !span.IsZero() {
		ctx = trace.ContextWithSpanContext(ctx, spanContext(span))
	}
	level := slog.LevelError
	if f.Harmless() || f.Unproven {
		level = slog.LevelWarn
	}
	if logger.Enabled(ctx, level) {
		logger.LogAttrs(ctx, level, findingMessage(&f), findingLogAttrs(&f)...)
	}
}

// findingMessage is the finding in words, with the likeliest launch.
func findingMessage(f *core.Finding) string {
	text := "gpu memory finding: " + f.Text
	if len(f.Suspects) == 0 {
		return text
	}
	u := &f.Suspects[0]
	text += fmt.Sprintf("; %s: %s, stream %v", f.Suspicion(0), plainName(u.Launch), u.Stream)
	if !u.Span.IsZero() {
		text += fmt.Sprintf(", trace %x", u.Span.TraceID)
	}
	return text
}

// plainName is a name as it is in a message: quoted where it could be misread.
func plainName(name string) string {
	if name == "" {
		return "a launch without a name"
	}
	if quoted := strconv.Quote(name); strings.ContainsAny(name, " ,;:") || quoted != `"`+name+`"` {
		return quoted
	}
	return name
}

func findingLogAttrs(f *core.Finding) []slog.Attr {
	attrs := []slog.Attr{slog.String("kind", string(f.Kind)), slog.String("source", f.Source)}
	if f.Unproven {
		attrs = append(attrs, slog.Bool("unproven", true))
	}
	if v := &f.Victim; v.ID.Generation != 0 {
		attrs = append(attrs,
			slog.String("tag", string(v.Tag.OrUntagged())),
			slog.Uint64("generation", uint64(v.ID.Generation)),
			slog.Uint64("requested", v.Requested),
			slog.String("ptr", fmt.Sprintf("%#x", v.ID.Ptr)),
			slog.Int("device", v.ID.Ordinal),
			slog.String("stream", v.ID.AllocStream.String()))
	}
	if f.BadBytes != 0 {
		attrs = append(attrs, slog.Int64("offset", f.Offset), slog.Uint64("bad_bytes", f.BadBytes))
	}
	if n := len(f.Suspects); n > 0 {
		attrs = append(attrs, slog.Int("suspects", n))
		if f.MoreSuspects {
			attrs = append(attrs, slog.Bool("more_suspects", true))
		}
		for i := range f.Suspects[:min(n, loggedSuspects)] {
			attrs = append(attrs, suspectGroup(i, &f.Suspects[i]))
		}
	}
	if !f.Span.IsZero() {
		attrs = append(append(attrs, spanLogAttrs(f.Span)...), slog.String(core.TraceKey, f.Span.Extent(f.Alone)))
	}
	for _, place := range []struct{ key, at string }{
		{"allocated_at", f.AllocStack.Caller()}, {"freed_at", f.FreeStack.Caller()}, {"called_at", f.CallStack.Caller()}, {"incident", f.Incident},
	} {
		if place.at != "" {
			attrs = append(attrs, slog.String(place.key, place.at))
		}
	}
	return attrs
}

// suspectGroup is one suspect, as "suspect_1" and so on. What is not known of it
// is left out.
func suspectGroup(i int, u *core.UseRecord) slog.Attr {
	attrs := []slog.Attr{slog.String("launch", u.Launch)}
	if u.LaunchID != 0 {
		attrs = append(attrs, slog.Uint64("id", u.LaunchID))
	}
	attrs = append(attrs, slog.String("stream", u.Stream.String()))
	if u.Access != 0 {
		attrs = append(attrs, slog.String("access", u.Access.String()))
	}
	if !u.Span.IsZero() {
		attrs = append(attrs, spanLogAttrs(u.Span)...)
	}
	return slog.GroupAttrs(fmt.Sprintf("suspect_%d", i+1), attrs...)
}

func spanLogAttrs(span core.SpanRef) []slog.Attr {
	return []slog.Attr{slog.String(core.TraceIDKey, hex.EncodeToString(span.TraceID[:])), slog.String(core.SpanIDKey, hex.EncodeToString(span.SpanID[:]))}
}
