package output

import (
	"io"
	"io/fs"
	"os"
)

// handle is an open file.
type handle interface {
	io.WriteCloser
	Sync() error
	Chmod(mode fs.FileMode) error
	Chown(uid, gid int) error
}

// calls are those of the file system that change it. Tests put faults in
// between.
type calls struct {
	open   func(path string, flag int, mode fs.FileMode) (handle, error)
	rename func(from, to string) error
	remove func(path string) error
}

var onDisk = calls{
	open: func(path string, flag int, mode fs.FileMode) (handle, error) {
		f, err := os.OpenFile(path, flag, mode)
		if err != nil {
			return nil, err
		}
		return f, nil
	},
	rename: os.Rename,
	remove: os.Remove,
}
