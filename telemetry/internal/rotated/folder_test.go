package rotated_test

import (
	"errors"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/telemetry/internal/rotated"
)

// late is a disk on which somebody else was a moment earlier with every draft.
type late struct{ rotated.Disk }

func (l late) Write(path string, text []byte) error {
	if err := os.WriteFile(path, []byte("theirs"), 0o600); err != nil {
		return err
	}
	return l.Disk.Write(path, text)
}

// A draft that was there already is another process's, and stays.
func TestADraftOfSomebodyElseIsNotRemoved(t *testing.T) {
	dir := t.TempDir()
	folder := rotated.Folder{Dir: dir, FS: late{}, Ours: regexp.MustCompile(`^x$`), Max: rotated.Bounds{Files: 10, Bytes: 1 << 20}}
	if err := folder.Open("test", rotated.Bounds{}, rotated.Bounds{}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Open: %v", err)
	}
	if _, _, err := folder.Add("x", []byte("ours")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Add: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Fatalf("%v, %v; want their two drafts", entries, err)
	}
	for _, e := range entries {
		if text, err := os.ReadFile(dir + "/" + e.Name()); err != nil || string(text) != "theirs" || !strings.HasPrefix(e.Name(), ".fencepost-") {
			t.Errorf("%s holds %q, %v", e.Name(), text, err)
		}
	}
}
