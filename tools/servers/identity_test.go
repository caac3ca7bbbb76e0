package servers

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// sharedUUID is the device that two services claim.
const sharedUUID = "GPU-00000000-0000-0000-0000-5ba7ed5ba7ed"

// documented are the queries that docs/metrics.md has for several processes on
// one device: of the total, of the free memory and of what is held.
func documented(t *testing.T) (total, free, held string) {
	t.Helper()
	page, err := os.ReadFile(root + "/docs/metrics.md")
	must(t, err)
	_, section, _ := strings.Cut(string(page), "\n## Several processes on one device\n")
	block := regexp.MustCompile("(?s)```promql\n(.*?)\n```").FindStringSubmatch(section)
	if block == nil {
		t.Fatal("the page has no queries")
	}
	lines := strings.Split(block[1], "\n")
	if len(lines) != 3 {
		t.Fatalf("the page has %d queries, want 3: %q", len(lines), lines)
	}
	return lines[0], lines[1], lines[2]
}

// byUUID is the values of a query that aggregates by UUID.
func (w watcher) byUUID(t *testing.T, expr string) map[string]float64 {
	t.Helper()
	values := map[string]float64{}
	for _, s := range w.query(t, expr) {
		if len(s.Metric) != 1 || s.Metric["uuid"] == "" {
			t.Fatalf("%s has %v", expr, s.Metric)
		}
		values[s.Metric["uuid"]] = s.value(t)
	}
	return values
}

// one is the value of a query that has one.
func (w watcher) one(t *testing.T, expr string) float64 {
	t.Helper()
	samples := w.query(t, expr)
	if len(samples) != 1 {
		return -1
	}
	return samples[0].value(t)
}

// Two processes on one device, under different numbers, and one on a device of
// its own: the documented queries count two devices, and what is held on each.
func TestProcessesOnOneDeviceAreOneDevice(t *testing.T) {
	const gib = 1 << 30
	first, stopFirst := startService(t, "", "FENCEPOST_SIM_UUID="+sharedUUID)
	second, stopSecond := startService(t, "", "FENCEPOST_SIM_UUID="+sharedUUID, "FENCEPOST_ORDINAL=3")
	alone, stopAlone := startService(t, "")
	stopSecond = sync.OnceFunc(stopSecond)
	defer stopFirst()
	defer stopSecond()
	defer stopAlone()
	var config strings.Builder
	fmt.Fprintf(&config, "global: {scrape_interval: %v, scrape_timeout: %v}\nscrape_configs:\n  - job_name: service\n    static_configs:\n", scrapeInterval, scrapeInterval)
	for name, url := range map[string]string{"first": first, "second": second, "alone": alone} {
		fmt.Fprintf(&config, "      - {targets: [%q], labels: {instance: %s}}\n", strings.TrimPrefix(url, "http://"), name)
		post(t, url+"/sort", `{"keys":[3,1,2]}`)
	}
	w := startPrometheus(t, config.String())
	total, free, held := documented(t)
	of := func(instance string) string { return fmt.Sprintf("gpumem_device_held_bytes{instance=%q}", instance) }
	wait := func(what string, done func() bool) {
		t.Helper()
		if !until(t.Context(), patience, done) {
			t.Fatalf("%s: total %v, free %v, held %v of %v", what, w.byUUID(t, total), w.byUUID(t, free), w.byUUID(t, held), w.query(t, "gpumem_device_held_bytes"))
		}
	}

	wait("three processes on two devices of 16 GiB are scraped", func() bool {
		totals := w.byUUID(t, total)
		return w.one(t, "sum(gpumem_device_total_bytes)") == 3*16*gib && len(totals) == 2 && totals[sharedUUID] == 16*gib
	})
	for uuid, bytes := range w.byUUID(t, free) {
		if bytes <= 0 || bytes > 16*gib {
			t.Errorf("%s has %v bytes free of 16 GiB", uuid, bytes)
		}
	}
	wait("what both hold adds up", func() bool {
		a, b := w.one(t, of("first")), w.one(t, of("second"))
		return a > 0 && b > 0 && w.byUUID(t, held)[sharedUUID] == a+b
	})
	for _, s := range w.query(t, `gpumem_device_info{uuid="`+sharedUUID+`"}`) {
		if want := map[string]string{"first": "0", "second": "3"}[s.Metric["instance"]]; s.Metric["device"] != want || s.Metric["pci_bus_id"] != "a7ed:00:00.0" {
			t.Errorf("an instance has %v", s.Metric)
		}
	}
	stopSecond()
	wait("one process is left on the device", func() bool {
		a := w.one(t, of("first"))
		return a > 0 && w.byUUID(t, held)[sharedUUID] == a && w.byUUID(t, total)[sharedUUID] == 16*gib
	})
}
