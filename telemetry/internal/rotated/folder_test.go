package rotated_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/internal/rotated"
)

func folder(t *testing.T) (*rotated.Folder, string) {
	t.Helper()
	dir := t.TempDir()
	f := &rotated.Folder{Dir: dir, Ours: regexp.MustCompile(`^\d-[a-z]+\.json$`), Max: rotated.Bounds{Files: 10, Bytes: 1 << 20}}
	must.Do(t, f.Open("test", rotated.Bounds{}, rotated.Bounds{}))
	return f, dir
}

// A name that is there already is another process's file, and stays.
func TestAFileOfAnotherProcessIsNotReplaced(t *testing.T) {
	f, dir := folder(t)
	must.Do(t, os.WriteFile(f.Path("1-x.json"), []byte("theirs"), 0o600))
	if path, _, err := f.Add("1-x.json", []byte("ours")); path != "" || !errors.Is(err, fs.ErrExist) {
		t.Errorf("Add: %q, %v", path, err)
	}
	if text, err := os.ReadFile(f.Path("1-x.json")); err != nil || string(text) != "theirs" {
		t.Errorf("it holds %q, %v", text, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}

// Until a file is whole its reader sees none: a write that fails at the last step, the
// rename, leaves nothing, and what stands beside a file before that step counts as a draft.
func TestAWriteThatFailsLeavesNothing(t *testing.T) {
	f, dir := folder(t)
	name := strings.Repeat("x", 200) + ".json"
	if err := os.Mkdir(f.Path(name), 0o700); err != nil { // which no file replaces
		t.Fatal(err)
	}
	if err := (rotated.RealDisk{}).Write(f.Path(name), []byte("text")); err == nil {
		t.Error("a folder was replaced")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	for name, want := range map[string]bool{".1-x.json8123": true, ".fencepost-7-8": true, "1-x.json": false, ".1-y": false, "1-x.json8123": false} {
		if f.IsDraft(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}

func TestAFileIsWhatWasWritten(t *testing.T) {
	f, dir := folder(t)
	path, _, err := f.Add("1-x.json", []byte("ours"))
	if err != nil || path != filepath.Join(dir, "1-x.json") {
		t.Fatalf("%q, %v", path, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&0o600 != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "ours" {
		t.Errorf("%q, %v", text, err)
	}
}
