// Package rotated writes the product's files: each in one step, by one goroutine, into
// a folder that keeps to a number of files and bytes. Readers see a whole file or none,
// and files of other programs are never touched.
package rotated

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/legible"
	"github.com/fencepost-gpu/fencepost/internal/wholefile"
)

// NameTime is the form of the time that names begin with, so that they sort by
// it.
const NameTime = "20060102T150405.000000000Z"

// Folder is a place for files of one sort that never holds more than a number
// of files and bytes of them. Several processes may share it: what is there is
// looked at anew for each file. It belongs to one goroutine.
type Folder struct {
	Dir string
	// Ours says which names are of that sort; they begin with [NameTime].
	Ours *regexp.Regexp
	Max  Bounds
	// Disk is the real one if it is nil.
	Disk Disk
}

// Disk makes the changes that fail on a full, broken or protected disk. Tests put
// faults in between.
type Disk interface {
	// Write makes a file in one step: afterwards it is whole on the disk, or after an
	// error absent.
	Write(path string, text []byte) error
	// Remove removes a file.
	Remove(path string) error
}

// RealDisk is the file system.
type RealDisk struct{}

// Write implements [Disk]. The text is first in a file of another name beside it,
// which [Folder.IsDraft] recognises.
func (RealDisk) Write(path string, text []byte) error { return wholefile.Write(path, text) }

// Remove implements [Disk].
func (RealDisk) Remove(path string) error { return os.Remove(path) }

// Bounds are what a folder holds at most.
type Bounds struct {
	Files int
	Bytes int64
}

// Open makes the folder and tries to write to it. Bounds that are zero become
// otherwise's. No name of a folder, or bounds below least, are a
// [core.InvalidRequestError] of op.
func (d *Folder) Open(op string, least, otherwise Bounds) error {
	d.Max.Files, d.Max.Bytes = cmp.Or(d.Max.Files, otherwise.Files), cmp.Or(d.Max.Bytes, otherwise.Bytes)
	if d.Disk == nil {
		d.Disk = RealDisk{}
	}
	const low = "%d: say %d or more, or 0 for the default of %d"
	switch {
	case d.Dir == "":
		return &core.InvalidRequestError{Op: op, Field: "Folder", Reason: "empty: name a folder"}
	case d.Max.Files < least.Files:
		return &core.InvalidRequestError{Op: op, Field: "MaxFiles", Reason: fmt.Sprintf(low, d.Max.Files, least.Files, otherwise.Files)}
	case d.Max.Bytes < least.Bytes:
		return &core.InvalidRequestError{Op: op, Field: "MaxBytes", Reason: fmt.Sprintf(low, d.Max.Bytes, least.Bytes, otherwise.Bytes)}
	}
	trial := filepath.Join(d.Dir, fmt.Sprint(trialPrefix, os.Getpid(), "-", time.Now().UnixNano()))
	err := d.make()
	if err == nil {
		err = d.Disk.Write(trial, []byte("{}\n"))
	}
	if err == nil {
		err = d.Disk.Remove(trial)
	}
	if err != nil {
		return fmt.Errorf("%s: the folder %s cannot be written to: %w", op, legible.Value(d.Dir), legible.Error(err))
	}
	return nil
}

func (d *Folder) make() error {
	return os.MkdirAll(d.Dir, 0o755) //nolint:gosec // others may read it, as its files
}

// Path is where the file of a name is.
func (d *Folder) Path(name string) string { return filepath.Join(d.Dir, name) }

// Add writes text under a name that is not there yet, after it has removed as many
// of the oldest files as are too many with it. It returns the path, which is empty if
// nothing was written, and how many it removed; the error may be that of a file that
// could not be removed, also if text was written.
func (d *Folder) Add(name string, text []byte) (path string, removed int, err error) {
	if err := d.make(); err != nil { // it may have been removed
		return "", 0, err
	}
	removed, fits, refused := d.makeRoom(int64(len(text)))
	if !fits {
		return "", removed, refused
	}
	path = d.Path(name)
	if _, err := os.Lstat(path); err == nil {
		return "", removed, fmt.Errorf("%s: %w", path, fs.ErrExist)
	}
	if err := d.Disk.Write(path, text); err != nil {
		return "", removed, err
	}
	return path, removed, refused
}

// errNoRoom refuses text that is larger than the whole folder may be.
var errNoRoom = errors.New("larger than the folder may be")

// makeRoom removes the oldest files until one more of so many bytes fits, and
// says whether it does. A file that cannot be removed stays, in the place of a
// newer one; err is the first such failure, if any.
func (d *Folder) makeRoom(bytes int64) (removed int, fits bool, err error) {
	ours, err := d.list()
	if err != nil {
		return 0, false, err
	}
	used := bytes
	for _, f := range ours {
		used += f.Size()
	}
	roomy := func() bool { return len(ours)-removed < d.Max.Files && used <= d.Max.Bytes }
	for _, f := range ours {
		if roomy() {
			break
		}
		// Another process may have removed it first.
		if refused := d.Disk.Remove(d.Path(f.Name())); refused != nil && !errors.Is(refused, fs.ErrNotExist) {
			err = cmp.Or(err, refused)
			continue
		}
		removed++
		used -= f.Size()
	}
	if roomy() {
		return removed, true, err
	}
	return removed, false, cmp.Or(err, errNoRoom)
}

// list is the folder's files of ours, oldest first: names begin with the time. A
// draft that is an hour old is of a process that died; it counts, and as it
// sorts first it is the first to go.
func (d *Folder) list() (ours []fs.FileInfo, err error) {
	entries, err := os.ReadDir(d.Dir)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.Type().IsRegular() { // gone, or not ours
			continue
		}
		if d.Ours.MatchString(e.Name()) || d.IsDraft(e.Name()) && time.Since(info.ModTime()) > time.Hour {
			ours = append(ours, info)
		}
	}
	return ours, err
}

// IsDraft reports whether a name is that of a file of ours that is not whole yet.
func (d *Folder) IsDraft(name string) bool {
	whole, hidden := strings.CutPrefix(strings.TrimRight(name, "0123456789"), ".")
	return hidden && d.Ours.MatchString(whole) || strings.HasPrefix(name, trialPrefix)
}

// trialPrefix is that of the file with which [Folder.Open] tries to write.
const trialPrefix = ".fencepost-"
