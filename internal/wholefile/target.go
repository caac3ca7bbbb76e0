package wholefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// maxLinks bounds a chain of symbolic links, which may be a ring.
const maxLinks = 40

var errLinks = errors.New("too many symbolic links")

// Target is where a file is, or would be made, that path leads to: the path behind all symbolic
// links, as far as there are folders. A rename to it keeps the links. Its error is one of a ring of
// links. It blocks in the file system.
func Target(path string) (string, error) {
	for range maxLinks {
		folder, base := filepath.Split(path) // Dir would take the way back of a link as that of a folder
		if base == "" {
			return path, nil // it can only be a folder
		}
		at := filepath.Join(behind(folder), base)
		to, err := os.Readlink(at)
		if err != nil {
			return at, nil //nolint:nilerr // it is no link
		}
		if !filepath.IsAbs(to) {
			folder, _ = filepath.Split(at)
			to = folder + to
		}
		path = to
	}
	return "", &fs.PathError{Op: "readlink", Path: path, Err: errLinks}
}

// behind is a folder behind all symbolic links. The part of it that is not there stays as it is.
func behind(folder string) string {
	if to, err := filepath.EvalSymlinks(folder); err == nil {
		return to
	}
	folder = filepath.Clean(folder)
	if parent := filepath.Dir(folder); parent != folder {
		return filepath.Join(behind(parent), filepath.Base(folder))
	}
	return folder
}
