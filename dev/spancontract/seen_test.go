package spancontract

import (
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencepost-gpu/fencepost/telemetry"
)

// All lists what there is to meet of the contract: each row, each of its
// parents, statuses, links and events, and each attribute that is not always
// there both present and absent. A workload that leaves one out has not tried
// the whole contract.
func All() []string {
	var all []string
	for i := range rows {
		row := &rows[i]
		all = append(all, row.ID())
		for _, p := range row.Parents {
			all = append(all, under(row, p))
		}
		if row.Status == ErrorOnFailure {
			all = append(all, status(row, true), status(row, false))
		}
		for _, a := range row.Attributes {
			if a.Presence == Sometimes {
				all = append(all, has(row, a.Key, true), has(row, a.Key, false))
			}
		}
		for _, l := range row.Links {
			for _, to := range l.To {
				all = append(all, link(row, to))
			}
		}
		for _, e := range row.Events {
			all = append(all, event(row, string(e.Name)))
		}
	}
	return all
}

func under(row *Row, parent telemetry.SpanName) string {
	return fmt.Sprintf("%s under %s", row.ID(), parent)
}
func status(row *Row, failed bool) string { return fmt.Sprintf("%s, failed: %v", row.ID(), failed) }
func link(row *Row, to telemetry.SpanName) string {
	return fmt.Sprintf("%s linked to %s", row.ID(), to)
}
func event(row *Row, name string) string { return fmt.Sprintf("%s with event %s", row.ID(), name) }
func has(row *Row, key attribute.Key, there bool) string {
	return fmt.Sprintf("%s has %s: %v", row.ID(), key, there)
}

// Seen counts what of the contract was met in spans that keep it, by the lines of
// [All].
func Seen(spans []sdktrace.ReadOnlySpan) map[string]int {
	n, seen := namesOf(spans), map[string]int{}
	for _, s := range spans {
		if row, _ := n.rowOf(s); row != nil {
			n.note(seen, row, s)
		}
	}
	return seen
}

// note counts what of row was met in s, which fits it.
func (n names) note(seen map[string]int, row *Row, s sdktrace.ReadOnlySpan) {
	seen[row.ID()]++
	seen[under(row, n.parent(s))]++
	seen[status(row, s.Status().Code == codes.Error)]++
	values := attribute.NewSet(s.Attributes()...)
	for _, a := range row.Attributes {
		seen[has(row, a.Key, values.HasValue(a.Key))]++
	}
	for _, l := range s.Links() {
		seen[link(row, n[l.SpanContext.SpanID()])]++
	}
	for _, e := range s.Events() {
		seen[event(row, e.Name)]++
	}
}
