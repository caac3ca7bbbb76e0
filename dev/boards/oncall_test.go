package boards_test

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
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

// An operator finds the panels that the page names on the boards as they are.
func TestThePageForOperatorsNamesPanelsThatExist(t *testing.T) {
	files, err := filepath.Glob("../../dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no boards: %v", err)
	}
	titles := map[string]bool{}
	for _, file := range files {
		panelsOf(t, "dashboards/"+filepath.Base(file), titles)
	}
	page := strings.Join(strings.Fields(read(t, "docs/operate.md")), " ")
	named := regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(page, -1)
	for _, m := range named {
		if !titles[m[1]] {
			t.Errorf("no board has a panel %q", m[1])
		}
	}
	if len(named) < 10 {
		t.Errorf("only %d panels are named", len(named))
	}
}
