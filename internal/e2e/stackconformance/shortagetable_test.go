package stackconformance_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

var update = flag.Bool("update", false, "write "+shortageFile+" anew")

// shortageFile is the table. A line that begins with "==" is a situation. The lines below it are its rows.
const shortageFile = "testdata/shortage.txt"

const shortageHead = `# What happens when memory is short, by situation and stack. "go test -update" writes it.
#
# Columns: backends | limits | guards | asked | device | heard | counted. A list names several stacks, and "all"
# each of the situation. A plus marks what was repeated, an exclamation mark what failed.
#
# limits    budget: the budget is used up. device: the device is. share: the share of the device is.
#           "device+budget" and "share+budget" have a budget with room above that; "device" and "share" have none.
# guards    none: the stack has no guard. impatient: mode off, and a negative patience. The others are modes; "sample"
#           samples each block.
# asked     ask: the layer above the budget asks it. try: the budget, or the guard without one, asks the backend.
#           free: quarantine gives a block up. reap: the backend is asked what the device has passed. "ask claim" and
#           "try claim" are reservations.
# device    the driver's calls that have to do with memory or ask how far the device is, in the order in which each
#           kind came first.
# heard     what the caller was told, and the events of refusals: [told] and [cured]. The text behind a slash is that
#           of the same stack without the layers that record, if it differs.
# counted   what the statistics of the stack and of the guard count. "served" are waits that ended well, and "bare"
#           blocks without red zones.
`

// row is the outcome as a row has it.
func (o outcome) row() string {
	return strings.Join([]string{o.asked, o.device, o.heard, o.counted}, " | ")
}

// readShortage reads the table: the rows of each situation by the stack.
func readShortage(t *testing.T) map[string]map[shortageStack]string {
	t.Helper()
	table, at := map[string]map[shortageStack]string{}, situation{}
	for line := range strings.Lines(string(must.Get(os.ReadFile(shortageFile))(t))) {
		if name, is := strings.CutPrefix(strings.TrimSpace(line), "== "); is {
			i := slices.IndexFunc(shortages, func(s situation) bool { return s.name == name })
			if i < 0 {
				t.Fatalf("%s has %q, which is no situation", shortageFile, name)
			}
			at, table[name] = shortages[i], map[shortageStack]string{}
			continue
		}
		columns := strings.Split(line, "|")
		if strings.HasPrefix(line, "#") || len(columns) != 7 {
			continue
		}
		for i := range columns {
			columns[i] = strings.TrimSpace(columns[i])
		}
		for _, how := range stacks(at) {
			if lists(columns[0], how.backend) && lists(columns[1], how.limit) && lists(columns[2], how.guard) {
				if table[at.name][how] != "" {
					t.Errorf("%s has two rows for %s, %+v", shortageFile, at.name, how)
				}
				table[at.name][how] = strings.Join(columns[3:], " | ")
			}
		}
	}
	return table
}

func lists(column, word string) bool {
	return column == "all" || slices.Contains(strings.Fields(column), word)
}

// writeShortage writes the table. Stacks with one outcome share rows.
func writeShortage(t *testing.T, table map[string]map[shortageStack]string) {
	t.Helper()
	text := shortageHead
	for _, of := range shortages {
		rows, wide := rowsOf(of, table[of.name]), [7]int{}
		for _, row := range rows {
			for i, column := range row {
				wide[i] = max(wide[i], len(column))
			}
		}
		text += "\n== " + of.name + "\n"
		for _, row := range rows {
			for i := range row {
				row[i] = fmt.Sprintf("%-*s", wide[i], row[i])
			}
			text += strings.TrimRight(strings.Join(row, " | "), " ") + "\n"
		}
	}
	must.Do(t, os.MkdirAll("testdata", 0o755), os.WriteFile(shortageFile, []byte(text), 0o644))
}

func rowsOf(of situation, outcomes map[shortageStack]string) (rows [][]string) {
	all := stacks(of)
	var done []string
	for _, first := range all {
		if slices.Contains(done, outcomes[first]) {
			continue
		}
		done = append(done, outcomes[first])
		guards := map[[2]string][]string{} // by backend and limit
		for _, how := range all {
			if outcomes[how] == outcomes[first] {
				key := [2]string{how.backend, how.limit}
				guards[key] = append(guards[key], how.guard)
			}
		}
		limits := map[[2]string][]string{} // by backend and guards
		for _, limit := range strings.Fields(of.limits) {
			for _, backend := range strings.Fields(of.backends) {
				if g := guards[[2]string{backend, limit}]; g != nil {
					key := [2]string{backend, strings.Join(g, " ")}
					limits[key] = append(limits[key], limit)
				}
			}
		}
		var merged [][]string
		for _, backend := range strings.Fields(of.backends) {
			for _, how := range all {
				key := [2]string{backend, strings.Join(guards[[2]string{backend, how.limit}], " ")}
				l := strings.Join(limits[key], " ")
				i := slices.IndexFunc(merged, func(m []string) bool { return m[1] == l && m[2] == key[1] })
				switch {
				case l == "":
				case i < 0:
					merged = append(merged, []string{backend, l, key[1]})
				case !lists(merged[i][0], backend):
					merged[i][0] += " " + backend
				}
			}
		}
		for _, m := range merged {
			for i, whole := range []string{of.backends, of.limits, strings.Join(shortageGuards, " ")} {
				if m[i] == whole && strings.Contains(whole, " ") {
					m[i] = "all"
				}
			}
			rows = append(rows, append(m, strings.Split(outcomes[first], " | ")...))
		}
	}
	return rows
}

// The table has each situation over each stack. The test makes each request twice, with layers that record which
// layer is asked, and without them. With -short it takes the stacks whose memory the budget bounds.
func TestWantOfMemoryIsAnsweredAsTheTableSays(t *testing.T) {
	defer monotime.SystemOnly()()
	table := map[string]map[shortageStack]string{}
	if !*update {
		table = readShortage(t)
	}
	for _, of := range shortages {
		t.Run(of.name, func(t *testing.T) {
			for _, how := range stacks(of) {
				if testing.Short() && how.limit != "budget" && of.limits != how.limit && !*update {
					continue
				}
				o, bare := playShortage(t, of, how, true), playShortage(t, of, how, false)
				if bare.heard != o.heard || bare.counted != o.counted {
					o.heard, o.counted = o.heard+" / "+bare.heard, o.counted+" / "+bare.counted
				}
				switch {
				case *update && table[of.name] == nil:
					table[of.name] = map[shortageStack]string{how: o.row()}
				case *update:
					table[of.name][how] = o.row()
				case o.row() != table[of.name][how]:
					t.Errorf("%s over %+v:\n got %s\nwant %s", of.name, how, o.row(), table[of.name][how])
				}
			}
		})
	}
	if *update && !t.Failed() {
		writeShortage(t, table)
	}
}
