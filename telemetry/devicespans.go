package telemetry

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core/oplog"
)

// DeviceSpans returns what makes a [SpanDevice] of each launch in a sampled trace on the device of that ordinal, when that has
// done it: a child of the launch's span, which has ended by then. It passes all on to next. Give it to
// cuda.StreamPoolConfig. It blocks no longer than the span processors do.
func DeviceSpans(cfg Config, ordinal int, next oplog.DeviceWorkSink) oplog.DeviceWorkSink {
	return deviceSpans{cfg.tracing(ordinal), next}
}

type deviceSpans struct {
	tracing *tracing
	next    oplog.DeviceWorkSink
}

func (d deviceSpans) Lost(launches int) { d.next.Lost(launches) }

func (d deviceSpans) Done(w *oplog.DeviceWork) {
	d.next.Done(w)
	t, parent := d.tracing, spanContext(w.Span)
	if t == nil || t.level == LevelOff || !parent.IsValid() {
		return
	}
	name, began, attrs := t.launches.name(SpanDevice, w.Name), w.Began, t.stepAttributes(w.Stream, w.Name)
	if w.Launch != 0 || len(w.Waits) == 0 {
		attrs = append(attrs, number(AttrLaunchID, w.Launch))
	} else { // memory that is used again: it waits
		tag := string(w.Waits[0].Tag)
		name, began, attrs = t.tagged(SpanDevice, w.Waits[0].Tag), w.Reached, append(attrs, text(AttrTag, tag))
	}
	_, span := t.tracer.Start(trace.ContextWithSpanContext(context.Background(), parent), string(SpanDevice), trace.WithTimestamp(began))
	if !span.IsRecording() {
		return
	}
	held := w.Unattributed
	for i := range w.Waits {
		held += max(0, w.Waits[i].Held)
	}
	attrs = append(attrs, nanoseconds(AttrQueued, max(0, w.Reached.Sub(w.Prepared))), nanoseconds(AttrHeld, held), nanoseconds(AttrClockError, w.Bound))
	if len(w.Waits) > 0 {
		attrs = append(attrs, heldBy(w))
	}
	set(span, SpanDevice, name, attrs)
	for i := range w.Waits {
		if of := &w.Waits[i]; !of.Span.IsZero() {
			span.AddLink(trace.Link{SpanContext: spanContext(of.Span), Attributes: waitAttributes(of)})
		}
	}
	span.End(trace.WithTimestamp(w.Ended))
}

// waitAttributes are those of a link to what a launch waited for.
func waitAttributes(w *oplog.DeviceWait) []attribute.KeyValue {
	attrs := appendLaunch([]attribute.KeyValue{number(AttrStream, w.Stream), text(AttrTag, string(w.Tag))}, w.Launch)
	if w.Access != 0 {
		attrs = append(attrs, number(AttrGeneration, w.Generation), AttrAccess.String(w.Access.String()))
	}
	if w.Held < 0 {
		return attrs
	}
	return append(attrs, nanoseconds(AttrHeld, w.Held))
}

// heldBy lists all waits of a launch in words, those for work of traces that are not sampled, too.
func heldBy(w *oplog.DeviceWork) attribute.KeyValue {
	list := make([]string, 0, len(w.Waits)+1)
	for i := range w.Waits {
		of := &w.Waits[i]
		what := "work"
		switch {
		case of.Launch != "":
			what = fmt.Sprintf("launch %d %q", of.For.Launch, of.Launch)
		case of.For.Launch != 0:
			what = fmt.Sprintf("launch %d", of.For.Launch)
		}
		took := "unattributed"
		if of.Held >= 0 {
			took = of.Held.String()
		}
		why := fmt.Sprintf("%s of %q, generation %d", of.Access, string(of.Tag), of.Generation)
		if of.Access == 0 {
			why = fmt.Sprintf("memory used again for %q", string(of.Tag))
		}
		list = append(list, fmt.Sprintf("%s: %s on stream %d (%s)", took, what, of.Stream, why))
	}
	if w.Unattributed > 0 {
		list = append(list, fmt.Sprintf("%s: the unattributed together", w.Unattributed))
	}
	return AttrHeldBy.StringSlice(list)
}

func nanoseconds(key attribute.Key, d time.Duration) attribute.KeyValue {
	return key.Int64(d.Nanoseconds())
}
