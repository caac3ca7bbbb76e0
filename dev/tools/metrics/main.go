// Metrics writes the tables of docs/metrics.md: the metrics from package
// telemetry/metrics, the spans from package spancontract; and that of Xids in docs/operate.md,
// from package internal/kmsg. The prose around them is written by hand.
//
//go:generate go run .
package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/fencepost-gpu/fencepost/dev/spancontract"
	"github.com/fencepost-gpu/fencepost/internal/kmsg"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// parts are the generated parts of a page.
type parts map[string]func() string

// pages are the documents, from this package's folder, where go generate and go test run.
var pages = map[string]parts{
	"../../../docs/metrics.md": {"metrics": metricRows, "spans": spanRows, "attributes": attributeRows},
	"../../../docs/operate.md": {"Xids": xidRows},
}

func main() {
	for page, of := range pages {
		text, err := os.ReadFile(page)
		if err == nil {
			if text, err = document(text, of); err == nil {
				err = os.WriteFile(page, text, 0o644) //nolint:gosec // a page for everybody
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "metrics:", err)
			os.Exit(1)
		}
	}
}

// document replaces the generated parts of the page. A page without the marks of
// a part is an error.
func document(old []byte, of parts) ([]byte, error) {
	text := string(old)
	for name, part := range of {
		begin, end := "<!-- "+name+": generated -->\n", "<!-- "+name+": end -->\n"
		before, rest, begun := strings.Cut(text, begin)
		_, after, ended := strings.Cut(rest, end)
		if !begun || !ended {
			return nil, fmt.Errorf("the page lacks the lines %q and %q", begin, end)
		}
		text = before + begin + "\n" + part() + "\n" + end + after
	}
	return []byte(text), nil
}

func metricRows() string {
	rows := "| metric | type, labels | meaning |\n| --- | --- | --- |\n"
	for _, m := range metrics.Catalogue() {
		kind := m.Type
		if labels := slices.DeleteFunc(slices.Clone(m.Labels), func(l string) bool { return l == "device" }); len(labels) > 0 {
			kind += " by `" + strings.Join(labels, "`, `") + "`"
		}
		rows += fmt.Sprintf("| %#q | %s | %s |\n", m.Name, kind, strings.TrimSpace(m.Help+" "+notes[m.Name]))
	}
	return rows
}

func xidRows() string {
	rows := "| Xid | whose | what it is | what to do |\n| --- | --- | --- | --- |\n"
	for _, m := range kmsg.Meanings() {
		numbers := strings.Trim(strings.ReplaceAll(fmt.Sprint(m.Numbers), " ", ", "), "[]")
		rows += fmt.Sprintf("| %s | %s | %s | %s |\n", numbers, m.Whose, m.What, m.Do)
	}
	return rows
}

// notes are what the page says of metrics beside their help.
var notes = map[string]string{
	"gpumem_findings_total":     "A kind without any has a 0 under `untagged`.",
	"gpumem_guard_events_total": "Blocks `guarded` and, for want of memory, `unguarded`; samples beyond the bound, `skipped`; those of a hunt `isolated` and `not_isolated`; comparisons `verified` and left out, `unchecked`; blocks `evicted` from quarantine, frees `retried`, refusals `relieved` by quarantine, blocks `given_up` for that; what a capture kept off its stream, `captured`; launches that a hunt delayed, `delays`; `findings`.",
	"gpumem_guard_state":        "`ledger_blocks`, `tombstones`, batches of comparisons awaited (`checks`), frees held back by launches (`deferred`), canaries in freed memory (`sentinels`), `hunted_tags`.",
}

func spanRows() string {
	var out strings.Builder
	var event spancontract.Event // all rows that have an event have this one
	for _, row := range spancontract.Rows() {
		text := "`" + string(row.Operation)
		if row.Target != "" {
			text += " {" + string(row.Target) + "}"
		}
		text += "`"
		if row.Case != "" {
			text += ", " + row.Case
		}
		text += fmt.Sprintf(": %s. Parent: %s. Attributes: %s.", row.When, spanNames(row.Parents), attributeNames(row.Attributes))
		if row.Status == spancontract.Error {
			text += " Status: error."
		}
		for _, l := range row.Links {
			text += fmt.Sprintf(" Links: to %s, %s, with %s.", spanNames(l.To), l.When, attributeNames(l.Attributes))
		}
		for _, event = range row.Events {
			text += " Event."
		}
		out.WriteString(item(text))
	}
	out.WriteString("\n" + wrap(fmt.Sprintf("*Event* is %#q, if %s. Attributes: %s.", event.Name, event.When, attributeNames(event.Attributes)), ""))
	return out.String()
}

func spanNames(names []telemetry.SpanName) string {
	var texts []string
	for _, n := range names {
		if n != spancontract.Caller {
			n = "`" + n + "`"
		}
		texts = append(texts, string(n))
	}
	return strings.Join(texts, " or ")
}

// attributeNames lists attributes, those of one condition together.
func attributeNames(attributes []spancontract.Attribute) string {
	var conditions []string
	of := map[string][]string{}
	for _, a := range attributes {
		if a.Key == telemetry.AttrSpanOperation {
			continue // which all have
		}
		when, name := a.When, "`"+string(a.Key)+"`"
		if a.Presence == spancontract.OnFailure {
			when = "it failed"
		}
		if a.Value != "" {
			name += " = " + a.Value
		}
		if of[when] == nil {
			conditions = append(conditions, when)
		}
		of[when] = append(of[when], name)
	}
	for i, when := range conditions {
		conditions[i] = strings.Join(of[when], ", ")
		if when != "" {
			conditions[i] = "if " + when + " " + conditions[i]
		}
	}
	return strings.Join(conditions, "; ")
}

func attributeRows() string {
	var out strings.Builder
	for _, d := range spancontract.Definitions() {
		kind := map[string]string{"INT64": "int", "INT64SLICE": "int[]", "STRING": "string", "STRINGSLICE": "string[]", "BOOL": "bool"}[d.Type.String()]
		if unit := map[string]string{"By": "bytes", "ns": "nanoseconds"}[d.Unit]; unit != "" {
			kind += ", " + unit
		}
		out.WriteString(item(fmt.Sprintf("%#q (%s): %s", d.Key, kind, d.Meaning)))
	}
	return out.String()
}

func item(text string) string { return wrap("- "+text, "  ") }

// wrap breaks text into lines of at most 100 columns; those after the first begin with indent.
func wrap(text, indent string) string {
	var lines []string
	for _, word := range strings.Fields(text) {
		if last := len(lines) - 1; last >= 0 && len(lines[last])+1+len(word) <= 100 {
			lines[last] += " " + word
			continue
		} else if last >= 0 {
			word = indent + word
		}
		lines = append(lines, word)
	}
	return strings.Join(lines, "\n") + "\n"
}
