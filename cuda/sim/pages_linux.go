package sim

import "golang.org/x/sys/unix"

// system asks for address space alone: pages appear when they are touched and
// count against no commit limit before. Tests put others in its place.
var system = pages{
	reserve: func(bytes uint64) ([]byte, error) {
		return unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	},
	commit: commitNothing,
	giveBack: func(part []byte) {
		// A failure only keeps the pages resident; the addresses are gone anyway.
		_ = unix.Madvise(part, unix.MADV_DONTNEED)
	},
	release: unix.Munmap,
}
