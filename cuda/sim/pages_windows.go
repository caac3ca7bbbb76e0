package sim

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

// system reserves address space and commits what the arena hands out: Windows
// counts every committed page against what memory and page file can hold
// together, touched or not, so a device that were committed as a whole would
// take 16 GiB of that at once.
//
// Given back is by decommitting, which makes the addresses fault. Resetting the
// pages instead would keep them counted, and mapped addresses move upwards
// through the whole arena.
var system = pages{
	reserve: func(bytes uint64) ([]byte, error) {
		at, err := windows.VirtualAlloc(0, uintptr(bytes), windows.MEM_RESERVE, windows.PAGE_READWRITE)
		if err != nil {
			return nil, err
		}
		// The address is none of Go's, which vet cannot know.
		return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), bytes), nil
	},
	commit: func(part []byte) error {
		_, err := windows.VirtualAlloc(address(part), uintptr(len(part)), windows.MEM_COMMIT, windows.PAGE_READWRITE)
		return err
	},
	giveBack: func(part []byte) {
		if windows.VirtualFree(address(part), uintptr(len(part)), windows.MEM_DECOMMIT) != nil {
			clear(part) // it is still there
		}
	},
	release: func(region []byte) error { return windows.VirtualFree(address(region), 0, windows.MEM_RELEASE) },
	revokes: true,
}

func address(part []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(part))) }
