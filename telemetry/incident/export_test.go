package incident

import (
	"time"

	"github.com/fencepost-gpu/fencepost/telemetry/internal/rotated"
)

// WithDisk puts a disk under a writer.
func (c Config) WithDisk(d rotated.Disk) Config { c.disk = d; return c }

// WithClock puts a clock under a writer.
func (c Config) WithClock(now func() time.Time) Config { c.now = now; return c }
