package incident

import (
	"context"
	"iter"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/telemetry/internal/rotated"
)

// Defaults of [Config].
const (
	DefaultMaxFiles = 256
	DefaultMaxBytes = 64 << 20
	DefaultQueue    = 256
	DefaultFull     = 4
	DefaultEvery    = time.Minute
)

// Config configures a [Writer]. Only Folder is required.
type Config struct {
	// Folder is where the files go. It is made if it is missing.
	Folder string
	// MaxFiles and MaxBytes are the most that the folder may hold of ours;
	// the oldest files are removed for new ones. Zero means DefaultMaxFiles
	// and DefaultMaxBytes. MaxBytes must leave room for one incident, 64 KiB.
	MaxFiles int
	MaxBytes int64
	// Queue is how many findings may wait for the disk; beyond it they are
	// dropped and counted. Zero means DefaultQueue.
	Queue int
	// Full is how many findings of one sort (kind, source, tag and stacks) are
	// written each for itself, and Every how often one is afterwards, with the
	// number of those that were left out in between. Zero means DefaultFull
	// and DefaultEvery.
	Full  int
	Every time.Duration
	// Around, if not nil, says what surrounds a finding, in steps: each value
	// knows more than the one before, and says in Incomplete what is missing;
	// the last is all that will be known. It is called in a goroutine of its own,
	// for one finding at a time, and has two seconds; the file is written with
	// what is known by then. ctx ends with that time, or before it when the writer
	// cannot wait any longer.
	Around func(ctx context.Context, f core.Finding) iter.Seq[Surroundings]
	// Failed, if not nil, is told of each file that could not be written although
	// [Writer.Take] or [Writer.Urgent] returned its path. It is called by the
	// goroutine that writes, which waits for it.
	Failed func(path string, err error)

	disk rotated.Disk
	now  func() time.Time
}
