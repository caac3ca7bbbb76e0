//go:build unix

package output

import (
	"io/fs"
	"syscall"
)

// ownerOf is whose a file is.
func ownerOf(info fs.FileInfo) *owner {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return &owner{user: int(st.Uid), group: int(st.Gid)}
	}
	return nil
}
