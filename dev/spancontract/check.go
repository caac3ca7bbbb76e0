package spancontract

import (
	"fmt"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// Check compares spans with the contract, and says where one is not as that has
// it. Spans of other scopes are looked at as parents only; links must lead to a
// span among them, so they must be all that was traced.
func Check(spans []sdktrace.ReadOnlySpan) (problems []string) {
	n := namesOf(spans)
	for _, s := range spans {
		if s.InstrumentationScope().Name != telemetry.ScopeName {
			continue
		}
		if _, problem := n.rowOf(s); problem != "" {
			problems = append(problems, problem)
		}
	}
	return problems
}

// names are the operations of the spans that are checked, [Caller] of other scopes' and of jobs.
type names map[trace.SpanID]telemetry.SpanName

func namesOf(spans []sdktrace.ReadOnlySpan) names {
	n := names{}
	for _, s := range spans {
		n[s.SpanContext().SpanID()] = Caller
		if s.InstrumentationScope().Name == telemetry.ScopeName {
			if operation := operationOf(s); operation != telemetry.SpanJob {
				n[s.SpanContext().SpanID()] = operation
			}
		}
	}
	return n
}

func operationOf(s sdktrace.ReadOnlySpan) telemetry.SpanName {
	return telemetry.SpanName(valueOf(s, telemetry.AttrSpanOperation))
}

// valueOf is the text of an attribute, empty if s has none.
func valueOf(s sdktrace.ReadOnlySpan, key attribute.Key) string {
	for _, kv := range s.Attributes() {
		if kv.Key == key {
			return kv.Value.AsString()
		}
	}
	return ""
}

// objectToName demands the operation and its target, or other for one that is not told apart.
func objectToName(row *Row, s sdktrace.ReadOnlySpan) string {
	operation, target := string(row.Operation), valueOf(s, row.Target)
	possible := []string{operation + " " + target, operation + " " + string(metrics.OtherTag)}
	if target == "" || row.Target == telemetry.AttrTag && core.Tag(target) == core.Tag("").OrUntagged() {
		possible = []string{operation}
	}
	if slices.Contains(possible, s.Name()) {
		return ""
	}
	return fmt.Sprintf("the name is %q of the target %q", s.Name(), target)
}

// rowOf is the one row that fits, or what is wrong. Of a span that fits none it
// tells what each row of its operation objects to.
func (n names) rowOf(s sdktrace.ReadOnlySpan) (fits *Row, problem string) {
	var fitting []*Row
	var objections []string
	for i := range rows {
		row := &rows[i]
		if row.Operation != operationOf(s) {
			continue
		}
		if wrong := n.objection(row, s); wrong != "" {
			objections = append(objections, row.ID()+": "+wrong)
			continue
		}
		fitting = append(fitting, row)
	}
	switch len(fitting) {
	case 1:
		return fitting[0], ""
	case 0:
		return nil, fmt.Sprintf("span %s fits no row: [%s]", s.Name(), strings.Join(objections, "; "))
	}
	return nil, fmt.Sprintf("span %s fits %d rows", s.Name(), len(fitting))
}

// objection says why s is not of row, empty if it is.
func (n names) objection(row *Row, s sdktrace.ReadOnlySpan) string {
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
	if wrong := objectToName(row, s); wrong != "" {
		return wrong
	}
	if parent := n.parent(s); !slices.Contains(row.Parents, parent) {
		return fmt.Sprintf("the parent is %s", parent)
	}
	for _, l := range s.Links() {
		if wrong := n.objectToLink(row, l); wrong != "" {
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
func (n names) parent(s sdktrace.ReadOnlySpan) telemetry.SpanName {
	if name, ok := n[s.Parent().SpanID()]; ok && s.Parent().TraceID() == s.SpanContext().TraceID() {
		return name
	}
	return Caller
}

func (n names) objectToLink(row *Row, l sdktrace.Link) string {
	to := n[l.SpanContext.SpanID()]
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
