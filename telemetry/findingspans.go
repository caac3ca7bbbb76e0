package telemetry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
)

// MaxFindingSpans is how many of a finding's suspects get a span for it, and are in its log
// record. The incident file has them all.
const MaxFindingSpans = 3

// Trace makes a span of the finding under each of the first suspects whose launch was
// traced, or, without a suspect, under the victim's newest use that was. Those spans
// have usually ended, and an ended span takes no event: a child still reaches the
// trace. For the likeliest suspect that was not traced there is one more, in the
// request that launched it, sampled or not; one only, because such spans are bounded.
// If no place is known, or so many suspects of which none declared the victim, it is the
// finding's origin.
//
// Trace returns f with the first of these spans. It is the first half of
// [Findings.Report], for callers that need that span before [Findings.Take] counts
// and logs f.
func (c *Findings) Trace(f core.Finding) core.Finding {
	if c.tracer == nil {
		return f
	}
	places := placesOf(&f)
	if len(places) == 0 && !f.Origin.IsZero() {
		places = append(places, place{in: f.Origin, attributes: []attribute.KeyValue{AttrTrace.String(f.Origin.Extent(!f.Origin.Sampled))}})
	}
	for _, p := range places {
		if !p.in.Sampled && !c.events.admit(time.Now()) {
			continue
		}
		span := c.findingSpan(p, &f)
		if !p.in.Sampled {
			c.events.remember(span, f.Err)
		}
		if f.Span.IsZero() && !span.IsZero() {
			f.Span, f.Alone = span, !p.in.Sampled
		}
	}
	return f
}

// place is a span under which a finding is told, and what says there why.
type place struct {
	in         core.SpanContext
	attributes []attribute.KeyValue
}

// placesOf are the places of the launches that get a span of the finding, each once,
// and one of those that were not traced.
func placesOf(f *core.Finding) []place {
	candidates, limit := named(f), MaxFindingSpans
	if len(f.Suspects) == 0 {
		candidates, limit = f.Uses, 1
	}
	var places []place
	untraced := 0
	for i := range candidates {
		u := &candidates[i]
		p := place{in: core.SpanContext{SpanRef: u.Span, Sampled: true},
			attributes: appendLaunch([]attribute.KeyValue{number(AttrLaunchID, u.LaunchID), number(AttrStream, u.Stream)}, u.Launch)}
		if u.Span.IsZero() {
			if u.Caller.IsZero() || untraced > 0 {
				continue
			}
			untraced++
			p.in, p.attributes = u.Caller, append(p.attributes, AttrTrace.String(u.Caller.Extent(!u.Caller.Sampled)))
		}
		known := slices.ContainsFunc(places, func(q place) bool { return q.in.SpanRef == p.in.SpanRef })
		if !known && len(places) < limit {
			places = append(places, p)
		}
	}
	return places
}

// findingSpan is started as if its parent were sampled, like the span of any event of a
// request that is not; see [tracing.failed].
func (c *Findings) findingSpan(p place, f *core.Finding) core.SpanRef {
	ctx := trace.ContextWithSpanContext(context.Background(), spanContext(p.in.SpanRef))
	var start []trace.SpanStartOption
	var end []trace.SpanEndOption
	if !f.Time.IsZero() {
		start, end = append(start, trace.WithTimestamp(f.Time)), append(end, trace.WithTimestamp(f.Time))
	}
	_, span := c.tracer.Start(ctx, string(SpanFinding), start...)
	if span.IsRecording() {
		set(span, SpanFinding, c.targets.name(SpanFinding, string(f.Kind)), append(findingAttributes(f), p.attributes...))
		fail(span, f.Text)
	}
	span.End(end...)
	return spanRef(span)
}

func findingAttributes(f *core.Finding) []attribute.KeyValue {
	attrs := append(make([]attribute.KeyValue, 0, room+5),
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
	left := lookBack
	for f := range c.recent.Newest() {
		if f.Err != nil && errors.Is(err, f.Err) {
			return *f, true
		}
		if left--; left == 0 {
			break
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
