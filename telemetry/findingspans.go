package telemetry

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
)

// MaxFindingSpans is how many of a finding's suspects get a span for it.
const MaxFindingSpans = 3

// traceFinding makes a span of the finding under each of the first suspects,
// as far as their launches were traced, or, if there is no suspect, under the victim's
// newest use that was. Those spans have ended, as a rule, and an ended span
// takes no event: a child of theirs is what still reaches the trace.
func traceFinding(tracer trace.Tracer, f *core.Finding) {
	for _, u := range tracedUses(f) {
		ctx := trace.ContextWithSpanContext(context.Background(), spanContext(u.Span))
		var start []trace.SpanStartOption
		var end []trace.SpanEndOption
		if !f.Time.IsZero() {
			start, end = append(start, trace.WithTimestamp(f.Time)), append(end, trace.WithTimestamp(f.Time))
		}
		_, span := tracer.Start(ctx, string(SpanFinding), start...)
		if span.IsRecording() {
			span.SetAttributes(findingAttributes(f)...)
			span.SetAttributes(suspectAttributes(u)...)
			fail(span, f.Text)
		}
		span.End(end...)
	}
}

// tracedUses are the records whose launches get a span of the finding, each
// launch's once.
func tracedUses(f *core.Finding) []core.UseRecord {
	candidates, limit := f.Suspects[:min(len(f.Suspects), MaxFindingSpans)], MaxFindingSpans
	if len(candidates) == 0 {
		candidates, limit = f.Uses, 1
	}
	var traced []core.UseRecord
	for _, u := range candidates {
		known := slices.ContainsFunc(traced, func(v core.UseRecord) bool { return v.Span == u.Span })
		if !u.Span.IsZero() && !known && len(traced) < limit {
			traced = append(traced, u)
		}
	}
	return traced
}

func findingAttributes(f *core.Finding) []attribute.KeyValue {
	attrs := append(make([]attribute.KeyValue, 0, room+4),
		text(AttrFindingKind, string(f.Kind)), text(AttrFindingSource, f.Source), AttrFindingSuspects.Int(len(f.Suspects)))
	if v := &f.Victim; v.ID.Generation != 0 {
		attrs = append(attrs, AttrDevice.Int(v.ID.Ordinal), number(AttrGeneration, v.ID.Generation),
			text(AttrTag, string(v.Tag.OrUntagged())), number(AttrRequested, v.Requested))
	}
	if f.BadBytes != 0 {
		attrs = append(attrs, AttrFindingOffset.Int64(f.Offset), number(AttrFindingBytes, f.BadBytes),
			AttrFindingExpected.String(fmt.Sprintf("0x%02x", f.Expected)), AttrFindingSeen.String(fmt.Sprintf("0x%02x", f.Seen)))
	}
	if f.Err != nil {
		attrs = append(attrs, AttrErrorType.String(ErrorType(f.Err)))
	}
	return attrs
}

// suspectAttributes name the launch that the span stands under.
func suspectAttributes(u core.UseRecord) []attribute.KeyValue {
	attrs := []attribute.KeyValue{number(AttrLaunchID, u.LaunchID), number(AttrStream, u.Stream)}
	if u.Launch != "" {
		attrs = append(attrs, text(AttrLaunchName, u.Launch))
	}
	return attrs
}

// lookBack is how many of the newest findings are compared with an error: one
// that a call returns was reported a moment before.
const lookBack = 16

// About returns the finding, of the last few, that was reported with err or an
// error that err wraps.
func (c *Findings) About(err error) (core.Finding, bool) {
	if err == nil {
		return core.Finding{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for back := range min(lookBack, len(c.recent)) {
		at := c.next - 1 - back
		if at < 0 {
			at += len(c.recent)
		}
		f := &c.recent[at]
		if f.Err != nil && errors.Is(err, f.Err) {
			return *f, true
		}
	}
	return core.Finding{}, false
}

// noteFinding makes the finding behind err an event of the span of the call
// that returns it.
func noteFinding(findings *Findings, span trace.Span, err error) {
	if findings == nil || !span.IsRecording() {
		return
	}
	if f, ok := findings.About(err); ok {
		span.AddEvent(string(SpanFinding), trace.WithAttributes(append(findingAttributes(&f), text(AttrFindingText, f.Text))...))
	}
}
