//go:build !unix

package output

import "io/fs"

// ownerOf is nil: files have no user and group by number here.
func ownerOf(fs.FileInfo) *owner { return nil }
