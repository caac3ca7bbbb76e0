//go:build !windows

package rotated

import (
	"errors"
	"io/fs"
	"os"
)

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := f.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrInvalid) {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}
