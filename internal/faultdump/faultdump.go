// Package faultdump takes the core dumps that a GPU's driver writes when a kernel faults: through a named pipe, so that
// nothing of them is kept in a file.
package faultdump

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

const pipeName = "dump"

// Watch reads the dumps that come through a pipe. It is safe for concurrent use.
type Watch struct {
	folder string
	pipe   *os.File
	raw    syscall.RawConn // the pipe's
	read   func(io.Reader)
	// begun is closed with the first byte of the first dump, done when that was read, ended when no more is.
	begun, done, ended chan struct{}
	close              sync.Once
	closed             error
}

// Open makes the pipe, in a new folder for temporary files that only this user can enter. read gets the
// first dump, and need not read all of it. Where there are no such pipes, the error is [errors.ErrUnsupported].
func Open(read func(io.Reader)) (*Watch, error) {
	folder, pipe, err := newPipe()
	if err != nil {
		return nil, fmt.Errorf("a pipe for the driver's GPU core dumps: %w", err)
	}
	raw, err := pipe.SyscallConn()
	if err != nil { // of no file that is open
		return nil, err
	}
	w := &Watch{folder: folder, pipe: pipe, raw: raw, read: read, begun: make(chan struct{}), done: make(chan struct{}), ended: make(chan struct{})}
	go w.watch()
	return w, nil
}

// Path is where the dumps are to be written.
func (w *Watch) Path() string { return filepath.Join(w.folder, pipeName) }

// Begun reports whether a dump has begun. It does not rely on the goroutine that reads it having come to that.
func (w *Watch) Begun() bool {
	select {
	case <-w.begun:
		return true
	default:
		return readable(w.raw)
	}
}

// Done is closed when the first dump was read.
func (w *Watch) Done() <-chan struct{} { return w.done }

// watch takes every dump to its end: a driver whose dump nobody reads waits for ever.
func (w *Watch) watch() {
	defer close(w.ended)
	for first := true; w.next(first); first = false {
	}
}

// next takes one dump; false when there is none any more.
func (w *Watch) next(first bool) bool {
	idle, err := openIdle(w.Path()) // while somebody may write, the pipe has no end
	if err != nil {
		return false
	}
	var start [1]byte // the rest shows that a dump has begun until begun does
	_, err = io.ReadFull(w.pipe, start[:])
	_ = idle.Close()
	if err != nil {
		return false
	}
	if first {
		close(w.begun)
		w.read(io.MultiReader(bytes.NewReader(start[:]), w.pipe))
	}
	_, err = io.Copy(io.Discard, w.pipe)
	if first {
		close(w.done)
	}
	return err == nil
}

// Close ends the watch and removes the pipe. A dump that has begun is read to its end before, as long as ctx lasts. A
// second call returns what the first did.
func (w *Watch) Close(ctx context.Context) error {
	w.close.Do(func() {
		if w.Begun() {
			select {
			case <-w.done:
			case <-ctx.Done():
			}
		}
		w.closed = w.pipe.Close()
		<-w.ended
		if err := os.RemoveAll(w.folder); err != nil {
			w.closed = err
		}
	})
	return w.closed
}
