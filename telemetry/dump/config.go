package dump

import (
	"cmp"
	"fmt"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/telemetry/history"
	"github.com/fencepost-gpu/fencepost/telemetry/internal/rotated"
)

// Trigger is why a dump is made.
type Trigger string

// The triggers.
const (
	// Finding: a memory bug was found.
	Finding Trigger = "finding"
	// Refusals: a storm of refusals began.
	Refusals Trigger = "refusals"
	// StickyError: the device was lost.
	StickyError Trigger = "sticky_error"
	// Request: somebody asked.
	Request Trigger = "request"
)

// Triggers are all triggers.
func Triggers() []Trigger { return []Trigger{Finding, Refusals, StickyError, Request} }

// Defaults of [Config].
const (
	DefaultMaxFiles       = 24
	DefaultMaxBytes       = 128 << 20
	DefaultEvery          = time.Minute
	minBytes        int64 = 64 << 10
)

// Config configures a [Writer]. Folder and Source are required.
type Config struct {
	// Folder is where the files go. It is made if it is missing.
	Folder string
	// Source takes the history to be written, once for a dump. The error says
	// why there is none. It is called in the writer's goroutine and should
	// make no device call.
	Source func() (history.Source, error)
	// MaxFiles and MaxBytes are the most that the folder may hold of dumps, of
	// which each is three files; the oldest are removed for new ones. Zero
	// means DefaultMaxFiles and DefaultMaxBytes. MaxBytes is 64 KiB at least.
	MaxFiles int
	MaxBytes int64
	// Every is the time that must lie between two dumps that nobody asked for;
	// those in between are left out and counted. The loss of the device is
	// dumped in any case. Zero means DefaultEvery.
	Every time.Duration

	fs  rotated.Files
	now func() time.Time
}

func (c Config) withDefaults() Config {
	c.MaxFiles = cmp.Or(c.MaxFiles, DefaultMaxFiles)
	c.MaxBytes = cmp.Or(c.MaxBytes, DefaultMaxBytes)
	c.Every = cmp.Or(c.Every, DefaultEvery)
	if c.fs == nil {
		c.fs = rotated.Disk{}
	}
	if c.now == nil {
		c.now = time.Now
	}
	return c
}

func (c Config) check() error {
	bad := func(field, reason string) error {
		return &core.InvalidRequestError{Op: "dump.NewWriter", Field: field, Reason: reason}
	}
	switch {
	case c.Folder == "":
		return bad("Folder", "empty: name a folder")
	case c.Source == nil:
		return bad("Source", "nil: say where the history is")
	case c.MaxFiles < len(forms):
		return bad("MaxFiles", fmt.Sprintf("%d: a dump is %d files, so say that many or more, or 0 for the default of %d", c.MaxFiles, len(forms), DefaultMaxFiles))
	case c.MaxBytes < minBytes:
		return bad("MaxBytes", fmt.Sprintf("%d: say %d or more, or 0 for the default of %d", c.MaxBytes, minBytes, DefaultMaxBytes))
	case c.Every < 0:
		return bad("Every", fmt.Sprintf("%v: say a time, or 0 for the default of %v", c.Every, DefaultEvery))
	}
	return nil
}
