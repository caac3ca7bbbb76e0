package spancontract

import (
	"fmt"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/telemetry"
)

// Report is what [Check] found.
type Report struct {
	// Problems says where a span is not as the contract has it.
	Problems []string
	// Seen counts what of the contract was met; its keys are those of [All].
	Seen map[string]int
}

// Check compares spans with the contract. Spans of other scopes are looked at
// as parents only; links must lead to a span among them, so they must be all
// that was traced.
func Check(spans []sdktrace.ReadOnlySpan) Report {
	c := checker{names: map[trace.SpanID]telemetry.SpanName{}, seen: map[string]int{}}
	for _, s := range spans {
		c.names[s.SpanContext().SpanID()] = Caller
		if s.InstrumentationScope().Name == telemetry.ScopeName {
			c.names[s.SpanContext().SpanID()] = telemetry.SpanName(s.Name())
		}
	}
	for _, s := range spans {
		if s.InstrumentationScope().Name == telemetry.ScopeName {
			c.check(s)
		}
	}
	return Report{Problems: c.problems, Seen: c.seen}
}

type checker struct {
	names    map[trace.SpanID]telemetry.SpanName
	problems []string
	seen     map[string]int
}

// check looks for the one row that fits. Of a span that fits none it tells what
// each row of its name objects to.
func (c *checker) check(s sdktrace.ReadOnlySpan) {
	var fitting []*Row
	var objections []string
	for i := range rows {
		row := &rows[i]
		if string(row.Name) != s.Name() {
			continue
		}
		if wrong := c.objection(row, s); wrong != "" {
			objections = append(objections, row.ID()+": "+wrong)
			continue
		}
		fitting = append(fitting, row)
	}
	switch len(fitting) {
	case 1:
		c.note(fitting[0], s)
	case 0:
		c.problems = append(c.problems, fmt.Sprintf("span %s fits no row: [%s]", s.Name(), strings.Join(objections, "; ")))
	default:
		c.problems = append(c.problems, fmt.Sprintf("span %s fits %d rows", s.Name(), len(fitting)))
	}
}

// objection says why s is not of row, empty if it is.
func (c *checker) objection(row *Row, s sdktrace.ReadOnlySpan) string {
	if s.SpanKind() != Kind {
		return fmt.Sprintf("the kind is %v", s.SpanKind())
	}
	failed := s.Status().Code == codes.Error
	if s.Status().Code == codes.Ok || failed && row.Status == Unset || !failed && row.Status == Error {
		return fmt.Sprintf("the status is %v", s.Status().Code)
	}
	if wrong := objectTo(s.Attributes(), row.Attributes, failed); wrong != "" {
		return wrong
	}
	if parent := c.parent(s); !slices.Contains(row.Parents, parent) {
		return fmt.Sprintf("the parent is %s", parent)
	}
	for _, l := range s.Links() {
		if wrong := c.objectToLink(row, l); wrong != "" {
			return wrong
		}
	}
	for _, e := range s.Events() {
		if wrong := objectToEvent(row, e); wrong != "" {
			return wrong
		}
	}
	if len(s.Events()) > len(row.Events) {
		return "an event twice"
	}
	return ""
}

// parent is the name of the parent's span; a parent that is not among the
// spans is the caller's.
func (c *checker) parent(s sdktrace.ReadOnlySpan) telemetry.SpanName {
	if name, ok := c.names[s.Parent().SpanID()]; ok && s.Parent().TraceID() == s.SpanContext().TraceID() {
		return name
	}
	return Caller
}

func (c *checker) objectToLink(row *Row, l sdktrace.Link) string {
	to := c.names[l.SpanContext.SpanID()]
	for _, known := range row.Links {
		if slices.Contains(known.To, to) {
			return objectTo(l.Attributes, known.Attributes, false)
		}
	}
	return fmt.Sprintf("a link to %q", to)
}

func objectToEvent(row *Row, e sdktrace.Event) string {
	for _, known := range row.Events {
		if string(known.Name) == e.Name {
			return objectTo(e.Attributes, known.Attributes, false)
		}
	}
	return "an event " + e.Name
}

// objectTo compares attributes with those of a row.
func objectTo(got []attribute.KeyValue, want []Attribute, failed bool) string {
	values := map[attribute.Key]attribute.Value{}
	for _, kv := range got {
		if _, twice := values[kv.Key]; twice {
			return fmt.Sprintf("%s stands there twice", kv.Key)
		}
		values[kv.Key] = kv.Value
		if !slices.ContainsFunc(want, func(a Attribute) bool { return a.Key == kv.Key }) {
			return fmt.Sprintf("%s does not belong there", kv.Key)
		}
		if d := define(kv.Key); d == nil || d.Type != kv.Value.Type() {
			return fmt.Sprintf("%s is of type %v", kv.Key, kv.Value.Type())
		}
	}
	for _, a := range want {
		value, there := values[a.Key]
		if needed := a.Presence == Always || a.Presence == OnFailure && failed; needed && !there {
			return fmt.Sprintf("%s is missing", a.Key)
		}
		if there && a.Presence == OnFailure && !failed {
			return fmt.Sprintf("%s without a failure", a.Key)
		}
		if there && a.Value != "" && value.AsString() != a.Value {
			return fmt.Sprintf("%s is %q", a.Key, value.AsString())
		}
	}
	return ""
}
