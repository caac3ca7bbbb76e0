// Metrics writes docs/metrics.md, the table of every metric, from the
// definitions in package telemetry. It is run in the root of the repository.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/fencepost-gpu/fencepost/telemetry"
)

func main() {
	if err := os.WriteFile("docs/metrics.md", []byte(document()), 0o644); err != nil { //nolint:gosec // a page for everybody
		fmt.Fprintln(os.Stderr, "metrics:", err)
		os.Exit(1)
	}
}

const introduction = `# Metrics

` + "`Runtime.Collector` is a `prometheus.Collector`. A scrape takes snapshots and makes no device call: what only the driver knows is read in the background." + `
No stream and no address is a label; of tags the %d largest are told apart, and the rest are ` + "`other`." + `

This page is generated: ` + "`go run ./internal/tools/metrics`" + ` writes it from the definitions in ` + "`telemetry/`" + `, and a test says when it is not current.

| metric | type | unit | labels | meaning |
| --- | --- | --- | --- | --- |
`

func document() string {
	var page strings.Builder
	fmt.Fprintf(&page, introduction, telemetry.MaxTags)
	for _, m := range telemetry.Catalogue() {
		fmt.Fprintf(&page, "| `%s` | %s | %s | %s | %s |\n", m.Name, m.Type, m.Unit, quoted(m.Labels), strings.TrimSpace(m.Help+" "+m.Note))
	}
	return page.String()
}

func quoted(labels []string) string {
	if len(labels) == 0 {
		return ""
	}
	return "`" + strings.Join(labels, "`, `") + "`"
}
