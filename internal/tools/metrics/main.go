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

` + "`Runtime.Collector`" + ` is a ` + "`prometheus.Collector`" + `. A scrape takes snapshots and makes no device call: what only the driver knows is read in the background, once a
second. No stream and no address is a label; of tags the %d largest are told apart, and the rest are ` + "`other`" + `.

## To serve them

` + "`fencepost.NewHandler`" + ` has them on ` + "`/metrics`" + `. Beside metrics of your own, in a registry of yours:

` + "```go" + `
registry := prometheus.NewRegistry()
registry.MustRegister(rt.Collector())
http.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
` + "```" + `

The handler answers in the format that a server asks for. Exemplars travel in OpenMetrics and in protobuf, native histograms in protobuf alone. A
Prometheus server takes native histograms with ` + "`scrape_native_histograms: true`" + ` (and ` + "`always_scrape_classic_histograms: true`" + ` to keep the classic buckets
too), and exemplars with ` + "`--enable-feature=exemplar-storage`" + `.

## What they mean

- ` + "`gpumem_operation_duration_seconds`" + ` is what callers waited, around the whole stack: with the guard, with the budget and with what either does to cure
  a refusal, and for refused and failed calls too, so its count is the sum of ` + "`gpumem_operations_total`" + ` over results. Work that was enqueued is not waited for.
  What the backend alone took is in the history. Native buckets are a tenth apart from 60 ns to 17 minutes. The exemplar of a bucket is its newest call
  with a sampled span of its own: ` + "`gpumem.alloc`, `gpumem.dealloc`" + `, and ` + "`gpumem.launch`" + ` for prepare, finish and abort.
- ` + "`gpumem_drift_bytes`" + ` compares the ledger with the driver's pool. Either moves all the time, so the pool is read between two readings of the ledger and the
  result is kept only if these are equal and no call was under way; it is tried 64 times a second, and ` + "`gpumem_drift_read_timestamp_seconds`" + ` says when it last
  worked. A drift of 0 was seen, not assumed; any other is a bug, of ours or of the driver. Blocks that were given back and whose free is not queued yet count as
  the ledger's, because the pool still has them out.
- ` + "`gpumem_device_foreign_bytes`" + ` is total less free less what the pool holds, what is mapped for isolated blocks, and what direct blocks have. The context, modules
  and libraries of this process are in it as well as other processes; on a device that nobody else uses it is flat.
- Isolated memory is in no pool: add ` + "`gpumem_isolated_bytes`" + ` to ` + "`gpumem_pool_reserved_bytes`" + ` for what the runtime has of the device.

## All of them

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
