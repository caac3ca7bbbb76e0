package rotated

import (
	"errors"
	"io/fs"
	"os"
)

// Disk is the real file system.
type Disk struct{}

var _ Files = Disk{}

// MkdirAll makes a folder that others may read: incidents hold names, stacks
// and addresses, and no bytes of the program's data but the first that differs.
func (Disk) MkdirAll(dir string) error {
	return os.MkdirAll(dir, 0o755) //nolint:gosec // see above
}

// Write makes the file anew; one that is there already is somebody else's.
func (Disk) Write(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // as the folder
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Exists reports whether there is something under the name.
func (Disk) Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Rename gives a file its name.
func (Disk) Rename(from, to string) error { return os.Rename(from, to) }

// Remove removes one file.
func (Disk) Remove(path string) error { return os.Remove(path) }

// ReadDir lists a folder.
func (Disk) ReadDir(dir string) ([]fs.DirEntry, error) { return os.ReadDir(dir) }

// SyncDir makes a rename last. Systems and file systems that cannot are content
// without.
func (Disk) SyncDir(dir string) error { return syncDir(dir) }
