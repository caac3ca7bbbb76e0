package profile

import "github.com/fencepost-gpu/fencepost/core"

// MaxSamples bounds the samples of a profile. It is more than a service has
// of call sites that allocate; what keeps it from growing is a program that
// makes its tags from identifiers.
const MaxSamples = 1 << 15

// otherTag is the tag of what is beyond MaxSamples.
const otherTag core.Tag = "other"

// key is what the blocks of one sample have in common. A state of zero means
// everything ever allocated.
type key struct {
	// stack is interned; nil for unsampled.
	stack  *frames
	tag    core.Tag
	device int
	stream core.StreamID
	// noStream is set where the stream is not known.
	noStream bool
	state    core.BlockState
}

// values are those of a sample, in bytes and counts.
type values struct {
	allocObjects, allocBytes, inuseObjects, inuseBytes uint64
}

func (v values) plus(o values) values {
	return values{v.allocObjects + o.allocObjects, v.allocBytes + o.allocBytes, v.inuseObjects + o.inuseObjects, v.inuseBytes + o.inuseBytes}
}

// table sums up values by key while a profile is taken. It belongs to one
// goroutine.
type table struct {
	stacks  stackTable
	samples map[key]values
	limit   int
}

func newTable(limit int) *table {
	return &table{stacks: stackTable{}, samples: map[key]values{}, limit: limit}
}

func (t *table) add(k key, v values) {
	sum, known := t.samples[k]
	if !known && len(t.samples) >= t.limit {
		k = key{tag: otherTag, device: k.device, noStream: true, state: k.state}
		sum = t.samples[k]
	}
	t.samples[k] = sum.plus(v)
}
