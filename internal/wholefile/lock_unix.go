//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package wholefile

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lock locks a folder against other calls and processes. It is false, without an error, where the
// file system has no such lock.
func lock(folder string) (unlock func(), locked bool, err error) {
	dir, err := os.Open(folder)
	if err != nil {
		return nil, false, err
	}
	unlock = func() { _ = dir.Close() }
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		switch err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			return unlock, true, nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return unlock, false, nil
		case time.Now().After(end):
			unlock()
			return nil, false, errLocked(folder)
		}
	}
}
