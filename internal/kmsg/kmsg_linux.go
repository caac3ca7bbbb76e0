package kmsg

import (
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

func open(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err == nil {
		_, _ = file.Seek(0, io.SeekEnd) // a pipe has none
	}
	return file, err
}

// sinceBoot is the time on the clock that the log's is set by.
func sinceBoot() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // fails for no clock that there is
	return time.Duration(now.Nano())
}
