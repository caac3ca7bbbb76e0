package sim

import "golang.org/x/sys/unix"

// mapFlags asks for address space alone: pages appear when they are touched
// and count against no commit limit before.
const mapFlags = unix.MAP_ANON | unix.MAP_PRIVATE | unix.MAP_NORESERVE
