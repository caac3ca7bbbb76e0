package faultdump

import (
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

func newPipe() (folder string, reader *os.File, err error) {
	if folder, err = os.MkdirTemp("", "fencepost-faults-"); err != nil { // 0700
		return "", nil, err
	}
	name := filepath.Join(folder, pipeName)
	if err = syscall.Mkfifo(name, 0o600); err == nil {
		reader, err = os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // there is no writer yet
	}
	if err != nil {
		_ = os.RemoveAll(folder)
	}
	return folder, reader, err
}

// openIdle does not wait for a reader; without one it fails.
func openIdle(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
}

// readable reports whether there is something to read.
func readable(pipe syscall.RawConn) (ok bool) {
	_ = pipe.Control(func(fd uintptr) { // fails if the pipe is closed
		poll := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, _ := unix.Poll(poll[:], 0)
		ok = n > 0 && poll[0].Revents&unix.POLLIN != 0
	})
	return ok
}
