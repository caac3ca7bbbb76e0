package liveview

import (
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/core/readings"
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
	Jobs    func() Jobs
	// Findings is how many there were, and the newest of them, oldest first.
	Findings func() (total uint64, newest []core.Finding)
	// Refusals is how many there were, and the events of the newest, oldest
	// first.
	Refusals func() (total uint64, newest []oplog.Event)
	Guard    func() Guard
	// Device is what the device did of late, as far as it was timed. The slice is the view's.
	Device func() []oplog.Event
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

// Jobs are how many jobs do not have what they need yet.
type Jobs struct {
	// Waiting is how many wait for their reservation of the budget.
	Waiting int `json:"waiting"`
	// Learning is how many wait or run on a guess, because nothing is known yet of what they need.
	Learning int `json:"learning"`
}

// Streams are a pool of streams.
type Streams struct {
	Stats readings.StreamStats
	// List is every stream, in any order.
	List []readings.StreamInfo
}

// Link is a place that the page leads to, by an address relative to it.
type Link struct {
	Text string `json:"text"`
	Href string `json:"href"`
}
