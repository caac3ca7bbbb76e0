package coretest

import (
	"slices"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

// fakeBlock is what the fake keeps of one block.
type fakeBlock struct {
	core.Block
	withheld bool
	intents  []fakeIntent
}

// fakeIntent is an open intent on one block.
type fakeIntent struct {
	launch uint64
	holder core.UseRecord
}

// conflict returns the open intent that stands in the way of a use on stream,
// nil if there is none. Stream order covers intents on the same stream.
func (b *fakeBlock) conflict(stream core.StreamID, access core.Access) *core.UseRecord {
	for _, in := range b.intents {
		if in.holder.Stream != stream && in.holder.Access.Conflicts(access) {
			holder := in.holder
			return &holder
		}
	}
	return nil
}

func (b *fakeBlock) open(in *core.Intent, access core.Access) {
	b.intents = append(b.intents, fakeIntent{in.ID, core.UseRecord{Launch: in.Launch, Stream: in.Stream, Access: access}})
}

func (b *fakeBlock) close(launch uint64) {
	b.intents = slices.DeleteFunc(b.intents, func(in fakeIntent) bool { return in.launch == launch })
}

// live finds the block that id names, if it is live and id's pointer lies
// inside it; f.mu must be held.
func (f *Fake) live(op string, id core.BlockID) (*fakeBlock, error) {
	if id.Ordinal != f.ordinal {
		return nil, &core.StreamMisuseError{Op: op, Block: id, Reason: "the block belongs to another device"}
	}
	b, ok := f.blocks[id.Generation]
	if !ok || id.Ptr < b.ID.Ptr || id.Ptr >= b.ID.Ptr+b.Bytes {
		return nil, &core.UseAfterFreeError{Op: op, Generation: id.Generation, Block: id, State: core.Freed}
	}
	if b.State != core.Live {
		return nil, &core.UseAfterFreeError{Op: op, Generation: id.Generation, Block: id, State: b.State, Tag: b.Tag}
	}
	return b, nil
}

// firstLease is above the small numbers that tests make up for streams.
const firstLease core.StreamID = 1000

// Lease returns a fresh stream and the function that gives it back. From the
// first lease on the fake accepts only leased streams and the default stream;
// before it, any number will do for a stream.
func (f *Fake) Lease() (stream core.StreamID, release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.leases == nil {
		f.leases = map[core.StreamID]bool{}
	}
	stream = firstLease + core.StreamID(len(f.leases))
	f.leases[stream] = true
	return stream, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.leases[stream] = false
	}
}

// Streams leases a stream until the test ends. It fits [Subject].
func (f *Fake) Streams(t testing.TB) core.StreamID {
	stream, release := f.Lease()
	t.Cleanup(release)
	return stream
}

// checkStream refuses a stream that is not leased; f.mu must be held.
func (f *Fake) checkStream(op string, stream core.StreamID) error {
	if stream == core.DefaultStream || f.leases == nil || f.leases[stream] {
		return nil
	}
	return &core.StreamMisuseError{Op: op, Stream: stream, Reason: "stream " + stream.String() + " is not leased"}
}
