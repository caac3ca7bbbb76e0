package incident

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
)

// files are the calls of the file system that a folder makes. Tests put faults
// in between.
type files interface {
	MkdirAll(dir string) error
	// Write makes a new file with that text, on the disk when it returns.
	Write(path string, text []byte) error
	Exists(path string) bool
	Rename(from, to string) error
	// SyncDir puts the names of a folder on the disk.
	SyncDir(dir string) error
	Remove(path string) error
	ReadDir(dir string) ([]fs.DirEntry, error)
}

// The pattern of our names: the time, the number of the incident, the kind.
// The folder removes nothing else.
var (
	nameTime    = "20060102T150405.000000000Z"
	namePattern = regexp.MustCompile(`^\d{8}T\d{6}\.\d{9}Z-\d{6,20}-[a-z0-9-]{1,40}\.json$`)
	notInName   = regexp.MustCompile(`[^a-z0-9-]+`)
)

// A file is written under another name and then renamed, so that nobody reads
// half of one.
const (
	draftPrefix = ".fencepost-"
	draftSuffix = ".draft"
)

// folder is a place for incidents that never holds more than a number of files
// and bytes of ours. Several processes may share it: what is there is looked
// at anew for each file.
type folder struct {
	dir      string
	fs       files
	maxFiles int
	maxBytes int64
}

// open makes the folder, and tries to write to it.
func (d *folder) open() error {
	if err := d.fs.MkdirAll(d.dir); err != nil {
		return err
	}
	draft := filepath.Join(d.dir, draftPrefix+fmt.Sprint(os.Getpid(), "-", time.Now().UnixNano())+draftSuffix)
	if err := d.fs.Write(draft, []byte("{}\n")); err != nil {
		return errors.Join(err, ignoreMissing(d.fs.Remove(draft)))
	}
	return d.fs.Remove(draft)
}

// errTooLarge refuses text that a reader or the folder would not take.
var errTooLarge = errors.New("larger than an incident or the folder may be")

// add writes text under the name, after it has removed as many of the oldest
// as are too many with it. It returns the path, and how many it removed.
func (d *folder) add(name string, text []byte) (path string, removed int, err error) {
	if err := d.fs.MkdirAll(d.dir); err != nil { // somebody may have removed it
		return "", 0, err
	}
	if removed, err = d.makeRoom(int64(len(text))); err != nil {
		return "", removed, err
	}
	path = filepath.Join(d.dir, name)
	if d.fs.Exists(path) {
		return "", removed, fmt.Errorf("%s: %w", path, fs.ErrExist)
	}
	draft := filepath.Join(d.dir, draftPrefix+name+draftSuffix)
	if err := d.fs.Write(draft, text); err != nil {
		if errors.Is(err, fs.ErrExist) { // another process's
			return "", removed, err
		}
		return "", removed, errors.Join(err, ignoreMissing(d.fs.Remove(draft)))
	}
	if err := d.fs.Rename(draft, path); err != nil {
		return "", removed, errors.Join(err, ignoreMissing(d.fs.Remove(draft)))
	}
	return path, removed, d.fs.SyncDir(d.dir)
}

// makeRoom removes the oldest files until one more of so many bytes fits.
func (d *folder) makeRoom(bytes int64) (removed int, err error) {
	ours, err := d.list()
	if err != nil {
		return 0, err
	}
	held := int64(0)
	for _, f := range ours {
		held += f.bytes
	}
	for _, f := range ours {
		if len(ours)-removed < d.maxFiles && held+bytes <= d.maxBytes {
			break
		}
		// Another process may have been faster.
		if err := ignoreMissing(d.fs.Remove(filepath.Join(d.dir, f.name))); err != nil {
			return removed, err
		}
		removed++
		held -= f.bytes
	}
	return removed, nil
}

type entry struct {
	name  string
	bytes int64
}

// list is the folder's incidents, oldest first: names begin with the time. A
// draft that is an hour old is a process's that died; it counts, and as it
// sorts first it is the first to go.
func (d *folder) list() ([]entry, error) {
	entries, err := d.fs.ReadDir(d.dir)
	if err != nil {
		return nil, err
	}
	var ours []entry
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.Type().IsRegular() { // gone, or not ours
			continue
		}
		abandoned := isDraft(e.Name()) && time.Since(info.ModTime()) > time.Hour
		if namePattern.MatchString(e.Name()) || abandoned {
			ours = append(ours, entry{e.Name(), info.Size()})
		}
	}
	slices.SortFunc(ours, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	return ours, nil
}

func isDraft(name string) bool {
	return strings.HasPrefix(name, draftPrefix) && strings.HasSuffix(name, draftSuffix)
}

// fileName is the incident's name in a folder. Names sort by time.
func fileName(in *Incident) string {
	kind := notInName.ReplaceAllString(strings.ToLower(in.Finding.Kind), "-")
	return fmt.Sprintf("%s-%06d-%s.json", in.Finding.Time.UTC().Format(nameTime), in.Number, cmp.Or(kind[:min(len(kind), 40)], "unknown"))
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
