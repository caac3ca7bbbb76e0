// Package spancontract is what the spans of package telemetry promise, as data:
// each kind of span with its parents, attributes, status, links and events.
// The spans of docs/metrics.md are made from it, and tests compare spans that were really made with
// it by [Check].
package spancontract

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/telemetry"
)

// Caller stands for the span of the caller's context, which is no span of this contract, or a job's. A span may also have no parent then, unless
// [telemetry.Config].NoRoots is set.
const Caller telemetry.SpanName = "the caller"

// Kind is the kind of every span.
const Kind = trace.SpanKindInternal

// Definition is what an attribute means wherever it stands.
type Definition struct {
	Key  attribute.Key
	Type attribute.Type
	// Unit is "By" for bytes, "ns" for nanoseconds and empty for a number without a unit.
	Unit    string
	Meaning string
}

// Presence says when an attribute is there.
type Presence uint8

// The presences.
const (
	// Always: every span of the row has it.
	Always Presence = iota
	// OnFailure: exactly the spans with the status Error have it.
	OnFailure
	// Sometimes: Attribute.When says when.
	Sometimes
)

// Attribute is an attribute of a row.
type Attribute struct {
	Key      attribute.Key
	Presence Presence
	// When is the condition of Sometimes.
	When string
	// Value is the only value that it has in this row, if there is one.
	Value string
}

// Status is the status of a row's spans.
type Status uint8

// The statuses. Success leaves the status unset.
const (
	Unset Status = iota
	Error
	// ErrorOnFailure is Unset after a success and Error after a failure.
	ErrorOnFailure
)

// Link is a link that a row's spans may have.
type Link struct {
	To         []telemetry.SpanName
	When       string
	Attributes []Attribute
}

// Event is an event that a row's spans may have, once.
type Event struct {
	Name       telemetry.SpanName
	When       string
	Attributes []Attribute
}

// Row is one kind of span as it comes out. The rows of one operation differ so much
// that a span fits one of them only.
type Row struct {
	Operation telemetry.SpanName
	// Target is the attribute whose value stands behind the operation in the name, if
	// the span has that and the value is told apart there.
	Target attribute.Key
	// Case tells rows of one operation apart.
	Case string
	// When says which spans these are.
	When       string
	Parents    []telemetry.SpanName
	Status     Status
	Attributes []Attribute
	Links      []Link
	Events     []Event
}

// ID names the row, such as "gpumem.alloc, failed".
func (r *Row) ID() string {
	if r.Case == "" {
		return string(r.Operation)
	}
	return string(r.Operation) + ", " + r.Case
}

// always, onFailure and sometimes make attributes of rows.
func always(keys ...attribute.Key) []Attribute { return attributesOf(Attribute{}, keys) }

func onFailure() Attribute {
	return Attribute{Key: telemetry.AttrErrorType, Presence: OnFailure}
}

func sometimes(when string, keys ...attribute.Key) []Attribute {
	return attributesOf(Attribute{Presence: Sometimes, When: when}, keys)
}

func attributesOf(a Attribute, keys []attribute.Key) (all []Attribute) {
	for _, a.Key = range keys {
		all = append(all, a)
	}
	return all
}

func fixed(key attribute.Key, value string) Attribute { return Attribute{Key: key, Value: value} }
