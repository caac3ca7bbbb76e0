package driver

import "strings"

// ReusePolicy is a set of ways in which a pool may give memory that one stream
// freed to an allocation on another. On the stream that freed it, and once
// the host has synchronised with the free, memory is reused whatever the set.
type ReusePolicy uint8

// The ways, by the CUDA pool attribute that switches each.
const (
	// ReuseFollowEvents is CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	// the allocating stream already waits, by an event or by the legacy
	// default stream, for the free.
	ReuseFollowEvents ReusePolicy = 1 << iota
	// ReuseOpportunistic is CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC: the
	// free happens to be done when the allocation is asked for, with nothing
	// that orders the two. Which address is given then depends on timing.
	ReuseOpportunistic
	// ReuseInternalDependencies is
	// CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: the driver makes the
	// allocating stream wait for the free. It may serialise streams that the
	// program left independent.
	ReuseInternalDependencies

	// ReuseAll is every policy; disabling it leaves a stream its own memory.
	ReuseAll = ReuseFollowEvents | ReuseOpportunistic | ReuseInternalDependencies
)

var reuseNames = [...]string{"follow-events", "opportunistic", "internal-dependencies"}

// String names the policies of the set, joined by |, or "none".
func (p ReusePolicy) String() string {
	var names []string
	for i, name := range reuseNames {
		if p&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if p&^ReuseAll != 0 {
		names = append(names, "unknown")
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, "|")
}
