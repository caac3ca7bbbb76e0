package output

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
)

// File is a file that is being written. It is safe for concurrent use. It ends
// with Commit or Discard; both may be called again, and the first counts.
type File struct {
	target *Target
	mu     sync.Mutex
	to     handle
	// draft is the name until Publish; empty if the file has its own.
	draft string
	// err is the first error of any call: from then on the file cannot become
	// whole.
	err    error
	closed bool
}

// Create begins a file at the target: a draft beside it, or what is there if
// that is no regular file. Opening a pipe waits for its reader.
func (t *Target) Create() (*File, error) {
	f := &File{target: t}
	var err error
	if t.special {
		f.to, err = t.calls.open(t.path, os.O_WRONLY, 0)
	} else {
		err = f.createDraft()
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// createDraft makes a new file, of the permissions of the one that it is to
// replace, and of its owner and group as far as we may.
func (f *File) createDraft() error {
	t, mode := f.target, fs.FileMode(0o666)
	if t.exists {
		mode = t.mode &^ 0o077 // until it has its own
	}
	var err error
	for range maxTries {
		name := fmt.Sprintf(".fencepost-%d-%08x.part", os.Getpid(), rand.Uint32())
		f.draft = filepath.Join(filepath.Dir(t.path), name)
		f.to, err = t.calls.open(f.draft, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if !errors.Is(err, fs.ErrExist) {
			break // if it is there, it is another process's
		}
	}
	if err != nil {
		return fmt.Errorf("a draft beside %s: %w", t.path, err)
	}
	if !t.exists {
		return nil
	}
	if t.owner != nil && f.to.Chown(t.owner.user, t.owner.group) != nil {
		_ = f.to.Chown(-1, t.owner.group) // to give a file away is root's right; of the rest as much as may be
	}
	if err = f.to.Chmod(t.mode); err != nil {
		return errors.Join(err, f.Discard())
	}
	return nil
}

// maxTries bounds the search for a name that is free.
const maxTries = 100

// Write writes to the file. Once a write has failed all do.
func (f *File) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return 0, f.err
	}
	if f.closed {
		return 0, fs.ErrClosed
	}
	n, err := f.to.Write(p)
	f.fail(err)
	return n, err
}

// fail remembers the first error.
func (f *File) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

// Publish puts what is written on the disk, under the file's name. What is
// written afterwards is added to it. It is for a process that may end at once.
func (f *File) Publish() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed && f.draft != "" {
		f.sync()
		f.rename()
	}
	return f.err
}

// sync puts the draft on the disk, unless something failed already. Some file systems
// have no such call.
func (f *File) sync() {
	if f.err != nil {
		return
	}
	if err := f.to.Sync(); !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrInvalid) {
		f.fail(err)
	}
}

// rename gives the draft its name, unless something failed.
func (f *File) rename() {
	if f.err != nil {
		return
	}
	if f.err = f.target.calls.rename(f.draft, f.target.path); f.err == nil {
		f.draft = ""
	}
}

// Commit ends the file under its name. If anything failed, now or before, it
// returns the error, the draft is removed, and what was there before is as it
// was.
func (f *File) Commit() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return f.err
	}
	f.closed = true
	if f.draft == "" { // a pipe, or published: nothing is to be done but this
		f.fail(f.to.Close())
		return f.err
	}
	f.sync()
	f.fail(f.to.Close())
	if f.rename(); f.err != nil {
		return errors.Join(f.err, f.removeDraft())
	}
	return nil
}

// Discard ends the file and leaves what was there before. A file that was
// published stays.
func (f *File) Discard() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	err := f.to.Close()
	if f.draft == "" {
		return err
	}
	return f.removeDraft() // whatever the draft's end was like
}

func (f *File) removeDraft() error {
	err := f.target.calls.remove(f.draft)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

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
