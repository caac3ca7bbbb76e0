//go:build unix && !linux

package sim

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	protection = unix.PROT_READ | unix.PROT_WRITE
	anonymous  = unix.MAP_ANON | unix.MAP_PRIVATE
)

// system is anonymous memory, which macOS and the BSDs map lazily.
//
// MADV_DONTNEED is a hint there: macOS keeps the pages and their bytes until it
// is short of memory, and MADV_FREE_REUSABLE leaves open what a page reads as.
// A new mapping over the old one gives the pages back at once and reads as zero.
var system = pages{
	reserve: func(bytes uint64) ([]byte, error) {
		return unix.Mmap(-1, 0, int(bytes), protection, anonymous)
	},
	commit: commitNothing,
	giveBack: func(part []byte) {
		at := unsafe.Pointer(unsafe.SliceData(part))
		if _, err := unix.MmapPtr(-1, 0, at, uintptr(len(part)), protection, anonymous|unix.MAP_FIXED); err != nil {
			clear(part) // the old mapping is still there
		}
	},
	release: unix.Munmap,
}
