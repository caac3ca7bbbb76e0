package dump

import (
	"time"

	"github.com/fencepost-gpu/fencepost/telemetry/history"
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
	// Request: it was asked for.
	Request Trigger = "request"
)

// Defaults of [Config].
const (
	DefaultMaxFiles = 24
	DefaultMaxBytes = 128 << 20
	DefaultEvery    = time.Minute
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
	// Every is the time that must lie between two dumps that were not asked for;
	// those in between are left out and counted. The loss of the device is
	// dumped in any case. Zero means DefaultEvery.
	Every time.Duration

	now func() time.Time
}
