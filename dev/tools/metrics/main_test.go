package main

import (
	"os"
	"strings"
	"testing"
)

func TestThePageOfMetricsIsCurrent(t *testing.T) {
	page, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != document() {
		t.Error("docs/metrics.md is not what the definitions say: go -C dev run ./tools/metrics")
	}
}

// A bar or a new line in a text would break the table.
func TestEveryRowHasFiveCells(t *testing.T) {
	_, table, _ := strings.Cut(document(), "| --- | --- | --- | --- | --- |\n")
	rows := strings.Split(strings.TrimSuffix(table, "\n"), "\n")
	if len(rows) < 50 {
		t.Errorf("%d rows", len(rows))
	}
	for _, row := range rows {
		if strings.Count(row, "|") != 6 || !strings.HasPrefix(row, "| `gpumem_") {
			t.Errorf("not a row: %s", row)
		}
	}
}
