package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func TestThePagesAreCurrent(t *testing.T) {
	for page, of := range pages {
		text, err := os.ReadFile(page)
		must.Do(t, err)
		if made, err := document(text, of); err != nil || !bytes.Equal(made, text) {
			t.Errorf("%s is not what the definitions say (%v): make generate", page, err)
		}
		if _, err := document([]byte("a page without marks"), of); err == nil {
			t.Error("a page without marks was taken")
		}
	}
}

// A bar or a new line in a text would break the table.
func TestEveryRowHasThreeCells(t *testing.T) {
	rows := strings.Split(strings.TrimSuffix(metricRows(), "\n"), "\n")[2:]
	if len(rows) < 50 {
		t.Errorf("%d rows", len(rows))
	}
	for _, row := range rows {
		if strings.Count(row, "|") != 4 || !strings.HasPrefix(row, "| `gpumem_") {
			t.Errorf("not a row: %s", row)
		}
	}
}
