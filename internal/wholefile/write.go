//go:build !windows

// Package wholefile replaces a file by a whole one, or not at all.
package wholefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Write puts a whole file on the disk under its name, and the name too where the
// file system can. Others may read it: files hold names, stacks and addresses, and no
// bytes of the program's data but the first that differs.
func Write(path string, text []byte) error {
	if err := renameio.WriteFile(path, text, 0o644, renameio.WithTempDir(filepath.Dir(path))); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	err = dir.Sync()
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrInvalid) {
		err = nil
	}
	return errors.Join(err, dir.Close())
}
