package wholefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// ErrNotRegular is matched by the error of [Read] and [Update] for a path that names a folder, a
// pipe, a device or a socket.
var ErrNotRegular = errors.New("not a regular file")

// ErrTooLarge is matched by the error of [Read] for a file of more bytes than it may have.
var ErrTooLarge = errors.New("too large")

// Read is what a regular file holds. It never waits for a pipe's writer or a device.
func Read(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path) // opening a device can change it
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, notRegular(path)
	}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	if info, err = file.Stat(); err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // it took the other's place
		return nil, notRegular(path)
	}
	text, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(text)) > most {
		err = &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("%w: more than %d bytes", ErrTooLarge, most)}
	}
	return text, err
}

func notRegular(path string) error {
	return &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
}
