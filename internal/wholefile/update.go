package wholefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// patience is how long [Update] waits for others that update a file of the same folder. Tests
// shorten it.
var patience = 10 * time.Second

// Ready makes the folder of the file that path leads to, if that is missing, and tries to write a
// file there, which it removes. It blocks in the file system.
func Ready(path string) error {
	path, err := Target(path)
	if err != nil {
		return err
	}
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // others may read it, as its files
		return err
	}
	trial, err := os.CreateTemp(folder, "."+filepath.Base(path)+"*") // named as a draft, which the next Update removes
	if err != nil {
		return err
	}
	err = os.Remove(trial.Name())
	if errors.Is(err, fs.ErrNotExist) { // an Update has removed it
		err = nil
	}
	return errors.Join(trial.Close(), err)
}

// Update replaces a file by what change makes of its bytes. change gets the error of [Read] instead
// if there is one, such as that of a file that does not exist yet. If change fails, the file stays.
// A symbolic link stays one: Update replaces the file that it leads to ([Target]).
//
// A lock of the folder makes updates in it exclude each other, also those of other processes. It
// ends with its process. Update waits 10 s for it at most. If the file system has no such locks,
// the last of two updates at once wins. Update removes drafts of processes that died, or, without a
// lock, drafts that are more than an hour old.
func Update(path string, most int64, change func([]byte, error) ([]byte, error)) error {
	path, err := Target(path)
	if err != nil {
		return err
	}
	unlock, locked, err := lock(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer unlock()
	removeDrafts(path, locked)
	text, err := Read(path, most)
	if errors.Is(err, ErrNotRegular) { // a new file would take the place of a device
		return err
	}
	if text, err = change(text, err); err != nil {
		return err
	}
	return Write(path, text)
}

// removeDrafts removes the drafts of a file. A failure leaves them for the next time.
func removeDrafts(path string, all bool) {
	folder, base := filepath.Dir(path), filepath.Base(path)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return
	}
	for _, e := range entries {
		rest, hidden := strings.CutPrefix(e.Name(), "."+base)
		if !hidden || rest == "" || strings.Trim(rest, "0123456789") != "" || !e.Type().IsRegular() {
			continue
		}
		if info, err := e.Info(); err == nil && (all || time.Since(info.ModTime()) > time.Hour) {
			_ = os.Remove(filepath.Join(folder, e.Name()))
		}
	}
}

// errLocked is the error of a lock that others hold for too long.
func errLocked(folder string) error {
	return &fs.PathError{Op: "lock", Path: folder,
		Err: fmt.Errorf("another process has held the folder's lock for %v", patience)}
}
