package liveview

import (
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// Source is one device. Resource is required; what a function that is nil
// would say is left out. Each function must be safe for concurrent use and must
// not call the device.
type Source struct {
	// Name is the device's, such as "cuda:0 NVIDIA H200".
	Name string
	// UUID is the same in every process that uses the device; empty if it is
	// not known.
	UUID string
	// Resource is the outermost layer of the device's stack, which lists its
	// blocks.
	Resource core.Resource
	// Holders is what each tag is charged for, by state.
	Holders func() []core.Holder
	// Past is what happened before now. It needs Holders to begin with.
	Past    func() Past
	Health  func() core.Health
	Streams func() Streams
	// Findings is how many there were, and the newest of them, oldest first.
	Findings func() (total uint64, newest []core.Finding)
	// Refusals is how many there were, and the events of the newest, oldest
	// first.
	Refusals func() (total uint64, newest []core.Event)
	Guard    func() Guard
	// Files: the page shows the files that "incidents" beside itself lists, and
	// offers to make a dump by POST to "dump".
	Files bool
}

// Guard is how the debug guard is set.
type Guard struct {
	// Setting is its mode with options, Policy what follows a finding.
	Setting  string   `json:"setting"`
	Policy   string   `json:"policy"`
	HuntTags []string `json:"hunt_tags"`
	// Numbers are the guard's own, by name.
	Numbers map[string]uint64 `json:"numbers"`
	// Switch: the page offers to switch it, by POST to "guard" beside itself.
	Switch bool `json:"switch"`
}

// Streams are a pool of streams. Its numbers are those of a pool's statistics.
type Streams struct {
	Limit   int `json:"limit"`
	Leased  int `json:"leased"`
	Idle    int `json:"idle"`
	Adopted int `json:"adopted"`
	Waiting int `json:"waiting"`
	// List is every stream, in any order.
	List []Stream `json:"list"`
	// Omitted is how many the state leaves out; it is not the source's to set.
	Omitted int `json:"omitted"`
}

// Stream is one physical stream and who has it.
type Stream struct {
	// Number tells the streams apart. Name is "default", or empty.
	Number int    `json:"number"`
	Name   string `json:"name,omitempty"`
	// Lease, Tag and Since are of who has it; zero if nobody does. Where is
	// where it was acquired.
	Lease   uint64     `json:"lease,omitempty"`
	Tag     string     `json:"tag,omitempty"`
	Since   time.Time  `json:"-"`
	Where   core.Stack `json:"-"`
	Adopted bool       `json:"adopted,omitempty"`
	// Busy: a call of the driver's is under way on it, so that Seq, After and
	// Last are not known.
	Busy      bool `json:"busy,omitempty"`
	Capturing bool `json:"capturing,omitempty"`
	// Seq numbers the newest event, Completed the newest that the device is
	// known to have passed.
	Seq       uint64 `json:"seq"`
	Completed uint64 `json:"completed"`
	// After is up to which event of other streams it is ordered.
	After []Point `json:"after,omitempty"`
	// Last is the name of the newest finished launch.
	Last         string `json:"last,omitempty"`
	OpenLaunches uint64 `json:"open_launches"`
	PendingFrees uint64 `json:"pending_frees"`
	PendingBytes uint64 `json:"pending_bytes"`
	Launches     uint64 `json:"launches"`
	WaitsQueued  uint64 `json:"waits_queued"`
	WaitsElided  uint64 `json:"waits_elided"`
	// AgeMS and At are filled in for the page: Since and Where as it shows
	// them.
	AgeMS int64  `json:"age_ms"`
	At    string `json:"at,omitempty"`
}

// Link is a place that the page leads to, by an address relative to it.
type Link struct {
	Text string `json:"text"`
	Href string `json:"href"`
}

// Point is an event of another stream.
type Point struct {
	Number int    `json:"number"`
	Seq    uint64 `json:"seq"`
}
