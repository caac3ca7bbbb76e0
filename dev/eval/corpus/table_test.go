package corpus

import (
	"slices"
	"strings"
	"testing"
)

// recordedLike is a record of a GPU that came to the same as the simulated
// device, and of compute-sanitizer, which found every bug; changed may change a
// result, and take it out by returning false.
func recordedLike(t *testing.T, changed func(*Result) bool) []Result {
	t.Helper()
	var all []Result
	keep := func(r Result) {
		if r.Device = "NVIDIA X1"; changed(&r) {
			all = append(all, r)
		}
	}
	for _, r := range simResults(t) {
		if r.Tier != Bare.Name {
			keep(r)
		}
	}
	for _, c := range All() {
		for _, variant := range c.Variants() {
			r := Result{Case: c.Name, Variant: variant, Tier: ToolTier, Verdict: Verdict{Outcome: Silent}, Backend: string(c.ToolBackend())}
			if variant == WithBug {
				r.Outcome = Found
			}
			keep(r)
		}
	}
	return all
}

// row is the line of a case in a table or a list, or of a total.
func row(page, begin string) string {
	lines := strings.Split(page, "\n")
	if i := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, begin) }); i >= 0 {
		return lines[i]
	}
	return ""
}

func wantLine(t *testing.T, page, begin, end string) {
	t.Helper()
	if line := row(page, begin); line == "" || !strings.HasSuffix(line, end) {
		t.Errorf("got %q, which should end with %q", line, end)
	}
}

func TestTheTableSaysThatNothingIsRecorded(t *testing.T) {
	page := Document(simResults(t), nil)
	wantLine(t, page, "| overrun-word |", "| sees it | not run |")
	wantLine(t, page, "| all bugs | 88 | simulated |", "| not run |")
	if strings.Contains(page, "where different") || !strings.Contains(page, "Nothing is recorded of a GPU") {
		t.Error("it has a column of a GPU, or does not say that none was there")
	}
	if recorded, err := Recorded("testdata/no such file"); len(recorded) > 0 || err != nil {
		t.Errorf("no file has %d results, %v", len(recorded), err)
	}
}

func TestTheTableSaysThatAGPUAgrees(t *testing.T) {
	page := Document(simResults(t), recordedLike(t, func(*Result) bool { return true }))
	wantLine(t, page, "There 274 of 274 verdicts", "the other 0 stand in the column of the GPU.")
	wantLine(t, page, "| case |", "| NVIDIA X1, where different | compute-sanitizer |")
	wantLine(t, page, "| overrun-word |", "| sees it |  | found (direct) |")
	wantLine(t, page, "| order | 28 | NVIDIA X1 |", "| 28 / 0 / 0 |")
	wantLine(t, page, "On the NVIDIA X1", "false alarms and broken: 0.")
	wantLine(t, page, "Under compute-sanitizer: 149 runs", "false alarms and broken: 0.")
	wantLine(t, page, "- **last-byte**", "nothing else.")
}

func TestTheTableShowsWhereAGPUDiffers(t *testing.T) {
	page := Document(simResults(t), recordedLike(t, func(r *Result) bool {
		switch r.Case + " " + r.Variant + " " + r.Tier {
		case "memset-byte-behind bug tier 0", "memset-byte-behind bug compute-sanitizer":
			r.Outcome = DriverRefused
		case "underrun-word bug tier 2":
			r.Culprit, r.Suspects = 2, 2
		case "overrun-word twin tier 1":
			*r = Result{Case: r.Case, Variant: r.Variant, Tier: r.Tier, Verdict: Verdict{Outcome: Broken}}
		case "read-behind twin compute-sanitizer", "last-byte clean compute-sanitizer":
			r.Outcome = FalseAlarm
		case "read-before bug compute-sanitizer":
			r.Outcome = NotRun
		case "one-byte clean tier 1":
			r.Outcome, r.Kind = FalseAlarm, "leak"
		case "wild-address bug tier 1":
			return false
		}
		return true
	}))
	wantLine(t, page, "There 271 of 273 verdicts", "the other 2 stand in the column of the GPU.")
	wantLine(t, page, "| memset-byte-behind |", "| tier 0: refused | refused (direct) |")
	wantLine(t, page, "| underrun-word |", "| tier 2: **found** underflow, suspect 2 of 2 | found (direct) |")
	wantLine(t, page, "| overrun-word |", "| tier 1, twin: broken | found (direct) |")
	wantLine(t, page, "| wild-address |", "| tier 1: not run | found (direct) |")
	wantLine(t, page, "| read-behind |", "|  | found (direct), twin: false alarm |")
	wantLine(t, page, "| read-before |", "|  | not run |")
	wantLine(t, page, "| spatial | 28 | NVIDIA X1 | 1 / 2 / 24, 1 refused | 19 / 1 / 7, 1 not run |", "| 26 / 0 / 0, 1 refused, 1 not run |")
	wantLine(t, page, "On the NVIDIA X1: 457 runs", "false alarms and broken: 2.")
	wantLine(t, page, "Under compute-sanitizer: 149 runs", "false alarms and broken: 2.")
	wantLine(t, page, "- **one-byte**", "On the GPU: tier 1: false alarm leak.")
	wantLine(t, page, "- **last-byte**", "compute-sanitizer: false alarm (async).")
}
