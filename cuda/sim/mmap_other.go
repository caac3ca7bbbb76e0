//go:build unix && !linux

package sim

import "golang.org/x/sys/unix"

// mapFlags asks for anonymous memory, which these systems map lazily too.
const mapFlags = unix.MAP_ANON | unix.MAP_PRIVATE
