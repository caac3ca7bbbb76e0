// Metrics writes docs/metrics.md, the table of every metric, from the
// tables of package metrics. It is run in the root of the repository.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

func main() {
	if err := os.WriteFile("../docs/metrics.md", []byte(document()), 0o644); err != nil { //nolint:gosec // a page for everybody
		fmt.Fprintln(os.Stderr, "metrics:", err)
		os.Exit(1)
	}
}

const introduction = `# Metrics

` + "`Runtime.Collector`" + ` is a ` + "`prometheus.Collector`" + `. A scrape takes snapshots and makes no device call: what only the driver knows is read in the background, once a
second. No stream and no address is a label; of tags %d are told apart, and the rest are ` + "`other`" + `.

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
- ` + "`gpumem_drift_bytes`" + ` compares the ledger with the pool, the driver's or our own. Either moves all the time, so the pool is read between two readings of the ledger and the
  result is kept only if these are equal and no call was under way; it is tried 64 times a second, and ` + "`gpumem_drift_read_timestamp_seconds`" + ` says when it last
  worked. A drift of 0 was seen, not assumed; any other is a bug, of ours or of the driver. Blocks that were given back and whose free is not queued yet count as
  the ledger's, because the pool still has them out. Where both agree, our own pool adds what it has mapped less what its streams have of it: a page lost among them.
- ` + "`gpumem_pool_cached_bytes`" + ` is what the pool holds and nobody has. It is high after a burst and falls when the pool gives back; ` + "`gpumem_pool_fragmented_bytes`" + ` is the part of it
  that lies beside blocks, in no whole page, so that only its own stream can have it, and no trim gives it back.
- ` + "`gpumem_device_foreign_bytes`" + ` is total less free less what the pool holds, what is mapped for isolated blocks, and what direct blocks have. The context, modules
  and libraries of this process are in it as well as other processes; on a device that nobody else uses it is flat. There a page that our own pool gave up and that the device still has
  shows as 2 MiB more (` + "`TestThePoolHasThePagesThatTheDeviceLacks`" + `).
- ` + "`gpumem_device_held_bytes`" + ` is what this runtime has of the device: what the pool has reserved, what is mapped for isolated blocks, which are in no pool, and
  direct blocks. It is read together with the three beside it, so that free, held and foreign are the total.
- ` + "`gpumem_memory_window_peak_bytes`" + ` is what a program that holds memory in bursts is read by: a scrape hits a burst by chance, the window has all of them. Windows of
  15 and 60 seconds begin at multiples of their length on the clock; the value is the highest of the last whole window, or of the one under way where that is
  higher already, so each peak is shown for as long as a window at least. It is kept by the clock, whoever scrapes and however often. Within a window it is exact;
  its ends are exact to the lateness of a tick each second. Where new highs come more than a thousand times in one second, the rest of that second counts with
  the sum of what each stream had at its own highest, at most with the highest since the start.
- ` + "`gpumem_tag_bytes`" + ` and ` + "`gpumem_tag_blocks`" + ` have a series for a tag from its first memory on, and keep it: 0 means that the tag holds nothing. When all places are taken,
  a tag that holds memory gets the place of the one that has had none for the longest time, ten minutes at least; the largest comes first. If there is no such tag, one
  that held more than twice as much throughout a minute as the smallest of those that held any gets the place of that, once it has had it for ten minutes. Until then a new tag is in ` + "`other`" + `,
  and the sums over tags are always those of ` + "`gpumem_memory_bytes`" + ` and ` + "`gpumem_blocks`" + `. Tags are looked at each second, whoever scrapes and however often.
- Live never includes what the guard quarantines, nor what is pending, in any metric; ` + "`outstanding`" + ` is the three together.

## Several processes on one device

` + "`device`" + ` is a number of the process: two processes on one GPU may call it 0 and 1, and each exports the total and the free memory of the whole GPU. Sums of those count
the GPU once a process. ` + "`gpumem_device_info`" + ` says which device it is, and its ` + "`uuid`" + ` is the same in every process that uses it: what ` + "`nvidia-smi -L`" + ` prints, ` + "`GPU-…`" + `
or, of an instance, ` + "`MIG-…`" + `. Of the total and the free memory take the maximum by UUID, of what runtimes hold the sum:

` + "```promql" + `
max by (uuid) (gpumem_device_total_bytes * on (job, instance, device) group_left (uuid) gpumem_device_info)
max by (uuid) (gpumem_device_free_bytes * on (job, instance, device) group_left (uuid) gpumem_device_info)
sum by (uuid) (gpumem_device_held_bytes * on (job, instance, device) group_left (uuid) gpumem_device_info)
` + "```" + `

Total less free less the sum of what is held is what no runtime explains: contexts, modules, libraries, and processes without Fencepost. Processes read up to a second
apart, so write ` + "`clamp_min(…, 0)`" + ` around it. ` + "`gpumem_device_foreign_bytes`" + ` is of one process's view, in which the other runtimes are foreign: never add it up.

- ` + "`host`" + ` is ` + "`NODE_NAME`" + ` of the environment, as a pod's manifest sets it, and the host's name otherwise: a container has a name of its own, and its GPU may
  be shared with others. dcgm-exporter has the same rule for ` + "`Hostname`" + `. OpenTelemetry's name of it is ` + "`host.name`" + `.
- ` + "`pci_bus_id`" + ` is in lower case with four digits of the domain, ` + "`0000:19:00.0`" + `, as in ` + "`/sys`" + `; dcgm-exporter and ` + "`nvidia-smi`" + ` write eight, in capitals. The instances of
  a GPU share it.
- What a driver cannot say is an empty label, and devices without a UUID fall together under the empty one. All drivers that are taken, of CUDA 11.4 and later, have the functions.
- A simulated device has a UUID of its own in each process, which begins with ` + "`GPU-00000000-0000-0000-`" + `. ` + "`FENCEPOST_SIM_UUID`" + ` lets several processes claim one; that
  makes them one device to whoever reads metrics and nothing else. Each has all the memory for itself, so its ` + "`gpumem_device_free_bytes`" + ` is the total less what *it*
  holds, and the maximum of them tells of the process that holds least. What is held adds up as on a GPU.

## All of them

This page is generated: ` + "`go -C dev run ./tools/metrics`" + ` writes it from the tables in ` + "`telemetry/metrics`" + `, and a test says when it is not current.

| metric | type | unit | labels | meaning |
| --- | --- | --- | --- | --- |
`

func document() string {
	var page strings.Builder
	fmt.Fprintf(&page, introduction, metrics.MaxTags)
	for _, m := range metrics.Catalogue() {
		fmt.Fprintf(&page, "| `%s` | %s | %s | %s | %s |\n", m.Name, m.Type, unitOf(m.Name), quoted(m.Labels), strings.TrimSpace(m.Help+" "+notes[m.Name]))
	}
	return page.String()
}

// notes are what the page says of metrics beside their help.
var notes = map[string]string{
	"gpumem_findings_total":     "A kind without any has a 0 under `untagged`.",
	"gpumem_guard_events_total": "Blocks `guarded` and, for want of memory, `unguarded`; samples beyond so many in a second, `skipped`; those of a hunt `isolated` in a mapping of their own and `not_isolated`; comparisons `verified` and left out, `unchecked`; blocks `evicted` from quarantine, frees `retried` there, refusals `relieved` by giving it up, and the blocks `given_up` for that; what a capture kept off its stream, `captured`; launches that a hunt delayed, `delays`; `findings`.",
	"gpumem_guard_state":        "`ledger_blocks`, `tombstones`, batches of comparisons that are awaited (`checks`), frees held back by launches (`deferred`), canaries (`sentinels`) in the place of freed blocks, `hunted_tags`.",
}

// unitOf goes by the end of a name, as Prometheus demands.
func unitOf(name string) string {
	base := strings.TrimSuffix(name, "_total")
	for _, unit := range []string{"bytes", "seconds"} {
		if strings.HasSuffix(base, "_"+unit) {
			return unit
		}
	}
	return ""
}

func quoted(labels []string) string {
	if len(labels) == 0 {
		return ""
	}
	return "`" + strings.Join(labels, "`, `") + "`"
}
