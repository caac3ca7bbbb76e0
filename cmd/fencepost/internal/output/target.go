// Package output writes the files that commands are told to write. What was
// there stays whole until what replaces it is whole and on the disk: a regular
// file is written as a draft beside its place and then renamed. What is no
// regular file (a device, a pipe) is written to as it is, and never
// replaced or removed; nor is anything else that this package did not make.
package output

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/fencepost-gpu/fencepost/internal/wholefile"
)

// ErrInput is the error of an output that is one of the inputs.
var ErrInput = errors.New("the output is the input too: name another file")

// Target is where a file is to be written. Nothing has been touched yet.
type Target struct {
	// path is behind all symbolic links, so that a link stays one.
	path string
	// exists, and the permissions and the owner of what there is; the owner is
	// nil where files have none.
	exists  bool
	mode    fs.FileMode
	owner   *owner
	special bool
	calls   calls
}

// owner is whose a file is, by the numbers of user and group.
type owner struct{ user, group int }

// Find looks at path. The error is [ErrInput] if it leads to one of the inputs,
// under whatever name, and otherwise says why a file cannot be written there, as
// far as that can be known beforehand.
func Find(path string, inputs ...fs.FileInfo) (*Target, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		resolved, linkErr := wholefile.Target(path)
		return &Target{path: resolved, calls: onDisk}, linkErr
	}
	if err != nil {
		return nil, err
	}
	if IsInput(info, inputs...) {
		return nil, fmt.Errorf("%s: %w", path, ErrInput)
	}
	t := &Target{path: path, exists: true, mode: info.Mode().Perm(), special: !info.Mode().IsRegular(), calls: onDisk}
	t.owner = ownerOf(info)
	switch {
	case info.IsDir():
		return nil, fmt.Errorf("%s: it is a folder: name a file", path)
	case t.special:
		return t, nil
	}
	if t.path, err = wholefile.Target(path); err != nil {
		return nil, err
	}
	return t, writable(t.path)
}

// IsInput reports whether an output is one of the inputs. A terminal may be both:
// what is written to it is not what is read.
func IsInput(out fs.FileInfo, inputs ...fs.FileInfo) bool {
	return out.Mode()&fs.ModeCharDevice == 0 && slices.ContainsFunc(inputs, func(in fs.FileInfo) bool { return os.SameFile(out, in) })
}

// writable refuses a file that may not be written to: to rename another over it
// would be permitted all the same.
func writable(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}
