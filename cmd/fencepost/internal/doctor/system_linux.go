package doctor

import "golang.org/x/sys/unix"

func access(path string) error { return unix.Access(path, unix.R_OK|unix.W_OK) }

func lockedMax() uint64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) != nil || limit.Cur == unix.RLIM_INFINITY {
		return 0
	}
	return limit.Cur
}
