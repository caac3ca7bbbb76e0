package main

import (
	"fmt"
	"strings"

	"github.com/fencepost-gpu/fencepost/dev/spancontract"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// The marks between which docs/traces.md is made by document.
const (
	beginMark = "<!-- contract: begin (made by \"go -C dev run ./tools/traces\") -->\n"
	endMark   = "<!-- contract: end -->\n"
)

// document puts the contract between the marks of a page. A page without the
// marks is an error.
func document(page string) (string, error) {
	before, rest, begun := strings.Cut(page, beginMark)
	_, after, ended := strings.Cut(rest, endMark)
	if !begun || !ended {
		return "", fmt.Errorf("the page lacks the lines %q and %q, between which the contract goes", beginMark, endMark)
	}
	return before + beginMark + "\n" + markdown() + "\n" + endMark + after, nil
}

// markdown is the contract as text.
func markdown() string {
	var out strings.Builder
	var refusal spancontract.Event // all rows that have an event have this one
	for _, row := range spancontract.Rows() {
		writeRow(&out, &row)
		for _, e := range row.Events {
			refusal = e
		}
	}
	fmt.Fprintf(&out, "### Event `%s`\n\nWith %s.\n\n", refusal.Name, attributeNames(refusal.Attributes))
	out.WriteString("### Attributes\n\n| attribute | type | unit | meaning |\n| --- | --- | --- | --- |\n")
	for _, d := range spancontract.Definitions() {
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", d.Key, typeName(d.Type), unitName(d.Unit), d.Meaning)
	}
	return out.String()
}

func writeRow(out *strings.Builder, row *spancontract.Row) {
	fmt.Fprintf(out, "### `%s`%s\n\n%s.\n\n", row.Name, caseName(row), strings.ToUpper(row.When[:1])+row.When[1:])
	fmt.Fprintf(out, "- parent: %s\n- status: %s\n", spanNames(row.Parents), statusName(row.Status))
	fmt.Fprintf(out, "- attributes: %s\n", attributeNames(row.Attributes))
	for _, l := range row.Links {
		fmt.Fprintf(out, "- links: to %s, %s, with %s\n", spanNames(l.To), l.When, attributeNames(l.Attributes))
	}
	for _, e := range row.Events {
		fmt.Fprintf(out, "- event: `%s`, if %s\n", e.Name, e.When)
	}
	out.WriteString("\n")
}

func caseName(row *spancontract.Row) string {
	if row.Case == "" {
		return ""
	}
	return ": " + row.Case
}

func spanNames(names []telemetry.SpanName) string {
	var texts []string
	for _, n := range names {
		if n == spancontract.Caller {
			texts = append(texts, string(spancontract.Caller)+", or none")
			continue
		}
		texts = append(texts, "`"+string(n)+"`")
	}
	return strings.Join(texts, " or ")
}

// attributeNames lists attributes, those of one condition together.
func attributeNames(attributes []spancontract.Attribute) string {
	var conditions []string
	byCondition := map[string][]string{}
	for _, a := range attributes {
		when := condition(a)
		if byCondition[when] == nil {
			conditions = append(conditions, when)
		}
		name := "`" + string(a.Key) + "`"
		if a.Value != "" {
			name += " = " + a.Value
		}
		byCondition[when] = append(byCondition[when], name)
	}
	var parts []string
	for _, when := range conditions {
		part := strings.Join(byCondition[when], ", ")
		if when != "" {
			part = "if " + when + " " + part
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

func condition(a spancontract.Attribute) string {
	switch a.Presence {
	case spancontract.Always:
		return ""
	case spancontract.OnFailure:
		return "it failed"
	}
	return a.When
}

func statusName(s spancontract.Status) string {
	return [...]string{spancontract.Unset: "unset", spancontract.Error: "error, with the error's text", spancontract.ErrorOnFailure: "unset, or error with the error's text if it failed"}[s]
}

func typeName(t fmt.Stringer) string {
	return map[string]string{"INT64": "int", "INT64SLICE": "int[]", "STRING": "string", "STRINGSLICE": "string[]", "BOOL": "bool"}[t.String()]
}

func unitName(unit string) string {
	if unit == "By" {
		return "bytes"
	}
	return unit
}
