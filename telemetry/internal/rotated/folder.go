// Package rotated keeps folders of small files that never hold more than so
// many files and bytes: what is new takes the place of the oldest. Nobody reads
// half of a file, and a file of somebody else's is never touched.
package rotated

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// Files are the calls of the file system that a [Folder] makes. Tests put faults
// in between.
type Files interface {
	// MkdirAll makes a folder and those above it, if they are not there.
	MkdirAll(dir string) error
	// Write makes a new file with that text, on the disk when it returns.
	Write(path string, text []byte) error
	// Exists reports whether there is a file.
	Exists(path string) bool
	// Rename gives a file another name, in one step for its readers.
	Rename(from, to string) error
	// SyncDir puts the names of a folder on the disk.
	SyncDir(dir string) error
	// Remove removes a file.
	Remove(path string) error
	// ReadDir lists a folder, in the order of names.
	ReadDir(dir string) ([]fs.DirEntry, error)
}

// A file is written under another name and then renamed, so that nobody reads
// half of one.
const (
	draftPrefix = ".fencepost-"
	draftSuffix = ".draft"
)

// NameTime is the form of the time that names begin with, so that they sort by
// it.
const NameTime = "20060102T150405.000000000Z"

// Folder is a place for files of one sort that never holds more than a number
// of files and bytes of them. Several processes may share it: what is there is
// looked at anew for each file. It belongs to one goroutine.
type Folder struct {
	Dir string
	FS  Files // nil means Disk
	// Ours says which names are of that sort; they begin with [NameTime].
	Ours *regexp.Regexp
	Max  Bounds
}

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
	if d.FS == nil {
		d.FS = Disk{}
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
	if err := d.try(); err != nil {
		return fmt.Errorf("%s: the folder %q cannot be written to: %w", op, d.Dir, err)
	}
	return nil
}

// try makes the folder, and a file in it that it removes again.
func (d *Folder) try() error {
	if err := d.FS.MkdirAll(d.Dir); err != nil {
		return err
	}
	draft := filepath.Join(d.Dir, draftPrefix+fmt.Sprint(os.Getpid(), "-", time.Now().UnixNano())+draftSuffix)
	if err := d.FS.Write(draft, []byte("{}\n")); err != nil {
		return errors.Join(err, d.discard(draft, err))
	}
	return d.FS.Remove(draft)
}

// discard removes what is there of a draft that could not be written, unless it
// was there before: then it is another process's.
func (d *Folder) discard(draft string, why error) error {
	if errors.Is(why, fs.ErrExist) {
		return nil
	}
	return ignoreMissing(d.FS.Remove(draft))
}

// Add writes text under the name, after it has removed as many of the oldest
// as are too many with it. It returns the path, which is empty if nothing was
// written, and how many it removed.
func (d *Folder) Add(name string, text []byte) (path string, removed int, err error) {
	if err := d.FS.MkdirAll(d.Dir); err != nil { // somebody may have removed it
		return "", 0, err
	}
	removed, fits, refused := d.makeRoom(int64(len(text)), "")
	if !fits {
		return "", removed, refused
	}
	path = d.Path(name)
	if d.FS.Exists(path) {
		return "", removed, fmt.Errorf("%s: %w", path, fs.ErrExist)
	}
	if err := d.put(name, text); err != nil {
		return "", removed, err
	}
	return path, removed, errors.Join(refused, d.FS.SyncDir(d.Dir))
}

// Path is where the file of a name is.
func (d *Folder) Path(name string) string { return filepath.Join(d.Dir, name) }

// Replace writes other text under the name of a file that Add wrote, in one step
// for its readers. What is larger takes the place of older files only. An error
// leaves the file as it was, and it matches [fs.ErrNotExist] if the file is gone:
// then nothing is written.
func (d *Folder) Replace(name string, text []byte) (removed int, err error) {
	if path := d.Path(name); !d.FS.Exists(path) {
		return 0, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	removed, fits, refused := d.makeRoom(int64(len(text)), name)
	if !fits {
		return removed, refused
	}
	if err := d.put(name, text); err != nil {
		return removed, err
	}
	return removed, errors.Join(refused, d.FS.SyncDir(d.Dir))
}

// put writes text under another name, and gives it its own when it is whole.
func (d *Folder) put(name string, text []byte) error {
	draft := filepath.Join(d.Dir, draftPrefix+name+draftSuffix)
	if err := d.FS.Write(draft, text); err != nil {
		return errors.Join(err, d.discard(draft, err))
	}
	if err := d.FS.Rename(draft, d.Path(name)); err != nil {
		return errors.Join(err, ignoreMissing(d.FS.Remove(draft)))
	}
	return nil
}

// errNoRoom refuses text that is larger than the whole folder may be.
var errNoRoom = errors.New("larger than the folder may be")

// makeRoom removes the oldest files until one more of so many bytes fits, and
// says whether it does. One that takes the place of the file of a name costs that
// no longer, and removes none but older ones. A file that cannot be removed stays, in the place of a
// newer one; err is the first such failure, if any.
func (d *Folder) makeRoom(bytes int64, replaced string) (removed int, fits bool, err error) {
	ours, err := d.list()
	if err != nil {
		return 0, false, err
	}
	ours = slices.DeleteFunc(ours, func(f entry) bool { return f.name == replaced })
	used := int64(0)
	for _, f := range ours {
		used += f.bytes
	}
	roomy := func() bool { return len(ours)-removed < d.Max.Files && used+bytes <= d.Max.Bytes }
	for _, f := range ours {
		if roomy() || replaced != "" && f.name > replaced {
			break
		}
		// Another process may have been faster.
		if refused := ignoreMissing(d.FS.Remove(filepath.Join(d.Dir, f.name))); refused != nil {
			err = cmp.Or(err, refused)
			continue
		}
		removed++
		used -= f.bytes
	}
	if roomy() {
		return removed, true, err
	}
	return removed, false, cmp.Or(err, errNoRoom)
}

type entry struct {
	name  string
	bytes int64
}

// list is the folder's files of ours, oldest first: names begin with the time. A
// draft that is an hour old is a process's that died; it counts, and as it
// sorts first it is the first to go.
func (d *Folder) list() ([]entry, error) {
	entries, err := d.FS.ReadDir(d.Dir)
	if err != nil {
		return nil, err
	}
	var ours []entry
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.Type().IsRegular() { // gone, or not ours
			continue
		}
		abandoned := IsDraft(e.Name()) && time.Since(info.ModTime()) > time.Hour
		if d.Ours.MatchString(e.Name()) || abandoned {
			ours = append(ours, entry{e.Name(), info.Size()})
		}
	}
	slices.SortFunc(ours, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	return ours, nil
}

// IsDraft reports whether a name is that of a file that is not whole yet.
func IsDraft(name string) bool {
	return strings.HasPrefix(name, draftPrefix) && strings.HasSuffix(name, draftSuffix)
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
