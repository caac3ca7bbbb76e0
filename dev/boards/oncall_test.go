package boards_test

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/dev/boards"
)

// panelsOf are the titles of a board's panels and rows, folded ones too.
func panelsOf(t *testing.T, file string, titles map[string]bool) {
	t.Helper()
	type panel struct {
		Title  string
		Panels []panel
	}
	var board panel
	if err := json.Unmarshal([]byte(read(t, file)), &board); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for rest := board.Panels; len(rest) > 0; rest = rest[1:] {
		titles[rest[0].Title] = true
		rest = append(rest, rest[0].Panels...)
	}
}

// Whoever is on call finds the panels that the page names on the boards as they
// are, and each section that it leads to; and whatever wakes people is there.
func TestThePageForOnCallNamesWhatThereIs(t *testing.T) {
	page, alerts := read(t, "docs/on-call.md"), read(t, "docs/alerts.md")
	files, err := filepath.Glob("../../dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no boards: %v", err)
	}
	titles := map[string]bool{}
	for _, file := range files {
		panelsOf(t, "dashboards/"+filepath.Base(file), titles)
	}
	named := regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(strings.Join(strings.Fields(page), " "), -1)
	for _, m := range named {
		if !titles[m[1]] {
			t.Errorf("no board has a panel %q", m[1])
		}
	}
	led := map[string]bool{}
	for _, m := range regexp.MustCompile(`\[(Fencepost\w+)\]\(alerts\.md#(\w+)\)`).FindAllStringSubmatch(page, -1) {
		led[m[1]] = true
		if strings.ToLower(m[1]) != m[2] || !strings.Contains(alerts, "\n## "+m[1]+"\n") {
			t.Errorf("%s leads nowhere", m[0])
		}
	}
	for _, a := range boards.Alerts() {
		if a.Severity == boards.Critical && !led[a.Name] {
			t.Errorf("%s wakes people, and the page has nothing about it", a.Name)
		}
	}
	if lines := strings.Count(page, "\n"); len(named) < 10 || lines > 120 {
		t.Errorf("%d panels are named on %d lines: it should be one page of what to look at", len(named), lines)
	}
}
