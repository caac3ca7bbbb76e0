//go:build unix

package output_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/fencepost-gpu/fencepost/cmd/fencepost/internal/output"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func put(t *testing.T, path, text string, mode fs.FileMode) fs.FileInfo {
	t.Helper()
	must.Do(t, os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode))
	return must.Get(os.Stat(path))(t)
}

func replace(path, text string, inputs ...fs.FileInfo) error {
	target, err := output.Find(path, inputs...)
	if err != nil {
		return err
	}
	f, err := target.Create()
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, text)
	return errors.Join(err, f.Commit())
}

func holds(t *testing.T, path, want string) {
	t.Helper()
	if text, err := os.ReadFile(path); err != nil || string(text) != want {
		t.Errorf("%s holds %q, %v; want %q", path, text, err, want)
	}
}

func TestAnOutputIsNeverTheInput(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	input := put(t, at("log"), "kept", 0o600)
	must.Do(t, os.Symlink("log", at("symbolic")), os.Symlink("symbolic", at("twice")), os.Link(at("log"), at("hard")))
	for _, name := range []string{"log", "symbolic", "twice", "hard", "../" + filepath.Base(dir) + "/log"} {
		expect.Error(t, replace(filepath.Join(dir, name), "new", put(t, at("other"), "", 0o600), input), output.ErrInput, name)
		holds(t, at("log"), "kept")
	}
	expect.Success(t, replace(at("other"), "new", input))
	holds(t, at("other"), "new")
}

// A link stays a link, and permissions stay what they were.
func TestWhatIsReplacedKeepsItsPlaceAndPermissions(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must.Do(t, os.Mkdir(at("far"), 0o700), os.Symlink("far/file", at("link")), os.Symlink("far/none", at("dangling")), os.Symlink("ring", at("ring")))
	put(t, at("far/file"), "old", 0o640)
	for _, c := range []struct {
		path, real string
	}{{"link", "far/file"}, {"dangling", "far/none"}, {"fresh", "fresh"}} {
		if err := replace(at(c.path), "new"); err != nil {
			t.Errorf("%s: %v", c.path, err)
			continue
		}
		holds(t, at(c.real), "new")
		if info, err := os.Lstat(at(c.path)); err != nil || (info.Mode()&fs.ModeSymlink != 0) != (c.path != "fresh") {
			t.Errorf("%s is %v, %v", c.path, info.Mode(), err)
		}
	}
	if info, err := os.Stat(at("far/file")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the file has %v, %v", info.Mode(), err)
	}
	if err := replace(at("ring"), "new"); err == nil {
		t.Error("a ring of links was written to")
	}
	if err := replace(at("far"), "new"); err == nil {
		t.Error("a folder was written to")
	}
	if os.Geteuid() == 0 { // root may write to anything, and give it away
		must.Do(t, os.Chown(at("far/file"), 12345, 23456))
		expect.Success(t, replace(at("link"), "newer"))
		info, err := os.Stat(at("far/file"))
		must.Do(t, err)
		if owner, ok := info.Sys().(*syscall.Stat_t); !ok || owner.Uid != 12345 || owner.Gid != 23456 || info.Mode().Perm() != 0o640 {
			t.Errorf("the file is %v's of %v, %v", owner.Uid, owner.Gid, info.Mode())
		}
		return
	}
	put(t, at("locked"), "old", 0o400)
	expect.Error(t, replace(at("locked"), "new"), fs.ErrPermission, "a file that is not to be written to")
	holds(t, at("locked"), "old")
}

// A pipe is written to and stays; so does a device, even one that refuses.
func TestPipesAndDevicesAreWrittenToAndStay(t *testing.T) {
	dir := t.TempDir()
	pipe, device := filepath.Join(dir, "pipe"), filepath.Join(dir, "full")
	must.Do(t, syscall.Mkfifo(pipe, 0o600), os.Symlink("/dev/full", device))
	read := make(chan string, 1)
	go func() {
		text, err := os.ReadFile(pipe)
		expect.Success(t, err)
		read <- string(text)
	}()
	must.Do(t, replace(pipe, "through the pipe"))
	if got := <-read; got != "through the pipe" {
		t.Errorf("the reader got %q", got)
	}
	expect.Error(t, replace(device, "does not fit"), syscall.ENOSPC, "a full device")
	for path, want := range map[string]fs.FileMode{pipe: fs.ModeNamedPipe, device: fs.ModeSymlink, "/dev/full": fs.ModeDevice | fs.ModeCharDevice} {
		if info, err := os.Lstat(path); err != nil || info.Mode().Type() != want {
			t.Errorf("%s is %v, %v; want %v", path, info, err, want)
		}
	}
	// A pipe that is the input too would wait for itself; a device may be both.
	info, err := os.Stat(pipe)
	must.Do(t, err)
	expect.ErrorOf(output.Find(pipe, info))(t, output.ErrInput, "the pipe that is read")
	if info, err = os.Stat(os.DevNull); err != nil {
		t.Fatal(err)
	}
	expect.Success(t, replace(os.DevNull, "nothing", info))
}
