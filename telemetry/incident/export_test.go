package incident

import (
	"io/fs"
	"time"

	"github.com/fencepost-gpu/fencepost/telemetry/internal/rotated"
)

// Files is the seam to the file system, for faults.
type Files = rotated.Files

// Disk is the real one.
func Disk() Files { return rotated.Disk{} }

// WithFiles puts a file system under a writer.
func (c Config) WithFiles(f Files) Config { c.fs = f; return c }

// WithClock puts a clock under a writer.
func (c Config) WithClock(now func() time.Time) Config { c.now = now; return c }

// IsDraft reports whether a name is that of a file that is not whole yet.
func IsDraft(name string) bool { return rotated.IsDraft(name) }

// DirEntry is what Files lists.
type DirEntry = fs.DirEntry
