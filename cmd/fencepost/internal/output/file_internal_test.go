package output

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

var errInjected = errors.New("injected")

// faults fails the call of a number, counted from 0 over all sorts of calls.
type faults struct{ next, at int }

func (s *faults) hit() error {
	s.next++
	if s.next-1 == s.at {
		return errInjected
	}
	return nil
}

// faulty is a handle under faults. What fails is not done; a close is.
type faulty struct {
	handle
	script *faults
}

func (h faulty) Write(p []byte) (int, error) {
	if err := h.script.hit(); err != nil {
		n, _ := h.handle.Write(p[:len(p)/2]) // as a full disk does
		return n, err
	}
	return h.handle.Write(p)
}

func (h faulty) Sync() error {
	if err := h.script.hit(); err != nil {
		return err
	}
	return h.handle.Sync()
}

func (h faulty) Chmod(mode fs.FileMode) error {
	if err := h.script.hit(); err != nil {
		return err
	}
	return h.handle.Chmod(mode)
}

func (h faulty) Close() error { return errors.Join(h.handle.Close(), h.script.hit()) }

func (s *faults) calls() calls {
	return calls{
		open: func(path string, flag int, mode fs.FileMode) (handle, error) {
			if err := s.hit(); err != nil {
				return nil, err
			}
			f, err := onDisk.open(path, flag, mode)
			return faulty{f, s}, err
		},
		rename: func(from, to string) error {
			if err := s.hit(); err != nil {
				return err
			}
			return os.Rename(from, to)
		},
		remove: os.Remove,
	}
}

// write writes two pieces and commits.
func write(path string, c calls, text string) error {
	target, err := Find(path)
	if err != nil {
		return err
	}
	target.calls = c
	f, err := target.Create()
	if err != nil {
		return err
	}
	_, first := f.Write([]byte(text[:len(text)/2]))
	_, second := f.Write([]byte(text[len(text)/2:]))
	if first != nil && second == nil {
		return errors.New("a file that had failed was written to")
	}
	return f.Commit()
}

// Whatever fails, the error is returned, the old file is what it was, and no
// draft is left.
func TestEveryCallOfTheFileSystemMayFailAndTheOldFileStays(t *testing.T) {
	for _, there := range []bool{true, false} {
		for at := 0; ; at++ {
			dir := t.TempDir()
			path := filepath.Join(dir, "out")
			if there {
				must.Do(t, os.WriteFile(path, []byte("old"), 0o600))
			}
			script := &faults{at: at}
			err := write(path, script.calls(), "the new text")
			if script.next <= at { // no call was left to fail
				if at < 5 || err != nil {
					t.Errorf("there %v: the script ended at call %d with %v", there, at, err)
				}
				break
			}
			if !errors.Is(err, errInjected) {
				t.Errorf("there %v, call %d: %v", there, at, err)
			}
			checkFolder(t, dir, map[bool]map[string]string{true: {"out": "old"}, false: {}}[there])
		}
	}
}

// checkFolder demands that dir holds these files and no other.
func checkFolder(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must.Do(t, err)
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil || want[e.Name()] != string(text) {
			t.Errorf("%s holds %q, %v; want %q", e.Name(), text, err, want)
		}
	}
	if len(entries) != len(want) {
		t.Errorf("%d files in the folder, want %d: %v", len(entries), len(want), entries)
	}
}

// A draft that was discarded, or whose file was published, is handled as often
// as anybody likes.
func TestAFileEndsOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	begin := func() *File {
		target, err := Find(path)
		must.Do(t, err)
		f, err := target.Create()
		must.Do(t, err)
		must.Get(f.Write([]byte("one ")))(t)
		return f
	}
	f := begin()
	expect.Success(t, errors.Join(f.Discard(), f.Discard(), f.Commit()))
	if _, err := f.Write(nil); err == nil {
		t.Error("a closed file was written to")
	}
	checkFolder(t, dir, nil)
	f = begin()
	expect.Success(t, f.Publish())
	checkFolder(t, dir, map[string]string{"out": "one "})
	_, err := f.Write([]byte("two"))
	expect.Success(t, errors.Join(err, f.Publish(), f.Commit(), f.Commit(), f.Discard()))
	checkFolder(t, dir, map[string]string{"out": "one two"})
}

// A file name as long as they may be has a draft all the same.
func TestALongNameHasADraft(t *testing.T) {
	dir := t.TempDir()
	name := strings.Repeat("n", 255)
	must.Do(t, write(filepath.Join(dir, name), onDisk, "text"))
	checkFolder(t, dir, map[string]string{name: "text"})
}
