package telemetry

import (
	"cmp"
	"errors"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/legible"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// MaxUseSpans is the largest number of blocks of one launch that get a
// prepare and a finish span each. Above it one span of each kind lists the
// generations of all.
const MaxUseSpans = 32

// room is the capacity that fits the attributes of any of the spans.
const room = 16

// scratches are the arrays in which the attributes of a span are gathered. A
// span takes copies, so the array of one serves the next.
var scratches = sync.Pool{New: func() any { return new([room]attribute.KeyValue) }}

func scratch() []attribute.KeyValue { return scratches.Get().(*[room]attribute.KeyValue)[:0] }

// set gives span its name and attributes, whose slice must not be used after that. It was started
// by the name of its operation alone, by which samplers decide.
func set(span trace.Span, operation SpanName, name string, attributes []attribute.KeyValue) {
	span.SetName(name)
	attributes = append(attributes, AttrSpanOperation.String(string(operation)))
	span.SetAttributes(attributes...)
	if cap(attributes) == room { // a scratch, that was large enough
		clear(attributes) // keeps no text alive
		scratches.Put((*[room]attribute.KeyValue)(attributes[:room]))
	}
}

// text is a string attribute that exporters can encode: one tag that is not
// UTF-8 would otherwise lose the whole batch that it travels in.
func text(key attribute.Key, value string) attribute.KeyValue {
	return key.String(strings.ToValidUTF8(value, "\uFFFD"))
}

// fail marks span as failed, with a text that exporters can encode, as text is.
func fail(span trace.Span, description string) {
	span.SetStatus(codes.Error, strings.ToValidUTF8(description, "\uFFFD"))
}

// end ends a span with the outcome of its operation. Success leaves the status
// unset, as OpenTelemetry asks of instrumentation.
func end(span trace.Span, err error, options ...trace.SpanEndOption) {
	if err != nil {
		span.SetAttributes(AttrErrorType.String(ErrorType(err)))
		fail(span, legible.Kept(err).Error())
	}
	span.End(options...)
}

func number[N ~uint64](key attribute.Key, value N) attribute.KeyValue {
	return key.Int64(int64(value))
}

func (t *tracing) blockAttributes(b core.Block) []attribute.KeyValue {
	return append(t.idAttributes(b.ID),
		text(AttrTag, string(b.Tag)),
		number(AttrRequested, b.Requested), number(AttrBytes, b.Bytes),
		AttrState.String(b.State.String()))
}

func (t *tracing) idAttributes(id core.BlockID) []attribute.KeyValue {
	return append(scratch(), t.device,
		number(AttrStream, id.AllocStream), number(AttrGeneration, id.Generation))
}

// requestAttributes describe an allocation that failed: there is no block.
func (t *tracing) requestAttributes(r core.Request) []attribute.KeyValue {
	return append(scratch(), t.device,
		number(AttrStream, r.Stream), text(AttrTag, string(r.Tag.OrUntagged())),
		number(AttrRequested, cmp.Or(r.Requested, r.Bytes)), number(AttrBytes, r.Bytes))
}

// stepAttributes are common to the launch and its steps.
func (t *tracing) stepAttributes(stream core.StreamID, launch string) []attribute.KeyValue {
	return appendLaunch(append(scratch(), t.device, number(AttrStream, stream)), launch)
}

// appendLaunch adds the name of a launch, if it has one.
func appendLaunch(attrs []attribute.KeyValue, name string) []attribute.KeyValue {
	if name == "" {
		return attrs
	}
	return append(attrs, text(AttrLaunchName, name))
}

func (t *tracing) launchAttributes(in *core.Intent) []attribute.KeyValue {
	return appendWaits(append(t.stepAttributes(in.Stream, in.Launch),
		number(AttrLaunchID, in.ID), AttrLaunchUses.Int(len(in.Uses)), AttrCrossStream.Bool(in.CrossStream)), in)
}

// useAttributes are those of one use; of all they sum them up.
func (t *tracing) useAttributes(in *core.Intent, use int) []attribute.KeyValue {
	attrs := t.stepAttributes(in.Stream, in.Launch)
	if use == allUses {
		generations := make([]int64, len(in.Uses))
		var sum core.PreparedUse
		for i := range in.Uses {
			u := &in.Uses[i]
			generations[i] = int64(u.Block.Generation)
			sum.Requested += u.Requested
			sum.Bytes += u.Bytes
			sum.Access = sum.Access.Combine(u.Access)
		}
		return append(attrs, AttrGenerations.Int64Slice(generations), AttrLaunchUses.Int(len(in.Uses)),
			number(AttrRequested, sum.Requested), number(AttrBytes, sum.Bytes), AttrAccess.String(sum.Access.String()))
	}
	u := &in.Uses[use]
	return append(attrs, number(AttrGeneration, u.Block.Generation), text(AttrTag, string(u.Tag)),
		number(AttrRequested, u.Requested), number(AttrBytes, u.Bytes), AttrAccess.String(u.Access.String()))
}

// prepareAttributes report the state live without a query: a block with an open
// intent is live.
func (t *tracing) prepareAttributes(in *core.Intent, use int) []attribute.KeyValue {
	if use == allUses {
		return appendWaits(t.useAttributes(in, use), in)
	}
	return append(t.useAttributes(in, use), AttrState.String(core.Live.String()),
		AttrWaitsQueued.Int(in.Uses[use].Waits), AttrWaitsElided.Int(in.Uses[use].Elided))
}

// appendWaits adds the waits of all uses of a launch.
func appendWaits(attrs []attribute.KeyValue, in *core.Intent) []attribute.KeyValue {
	elided := 0
	for i := range in.Uses {
		elided += in.Uses[i].Elided
	}
	return append(attrs, AttrWaitsQueued.Int(len(in.Waited)), AttrWaitsElided.Int(elided))
}

// refusedPrepareAttributes list what was declared, and name the block that
// the prepare failed on where the error does.
func (t *tracing) refusedPrepareAttributes(req core.UseRequest, err error) []attribute.KeyValue {
	generations := make([]int64, len(req.Uses))
	for i, u := range req.Uses {
		generations[i] = int64(u.Block.Generation)
	}
	return appendCulprit(append(t.stepAttributes(req.Stream, req.Launch), AttrGenerations.Int64Slice(generations)), err)
}

// appendCulprit adds the block that err is about, if it says.
func appendCulprit(attrs []attribute.KeyValue, err error) []attribute.KeyValue {
	var culprit core.Generation
	if e, ok := errors.AsType[*core.UseAfterFreeError](err); ok {
		culprit = e.Generation
	} else if e, ok := errors.AsType[*core.StreamMisuseError](err); ok {
		culprit = e.Block.Generation
	}
	if culprit == 0 {
		return attrs
	}
	return append(attrs, number(AttrGeneration, culprit))
}

// ErrorType is the value of [AttrErrorType] for err, which must not be nil: the reason, or the
// driver's own name (such as "CUDA_ERROR_ILLEGAL_ADDRESS") where the reason
// says no more than that the driver failed.
func ErrorType(err error) string {
	reason := metrics.ReasonOf(err)
	if reason == metrics.ReasonDriver {
		if failure, ok := errors.AsType[*core.DriverError](err); ok && failure.Name != "" {
			return failure.Name
		}
	}
	return reason.String()
}
