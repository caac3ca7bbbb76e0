package coretest

import (
	"strings"

	"github.com/fencepost-gpu/fencepost/core"
)

// layersOwn are the features that a decorator may add: they originate in it.
// All others come from the backend and can only be lost on the way out.
const layersOwn = core.Reservations | core.DeviceChecks

var layerCases = []testCase{
	{name: "layers agree on who they are", run: (*trial).layersAgree},
	{name: "layers narrow features and never widen them", run: (*trial).layersNarrow},
	{name: "each layer allocates and frees a kibibyte", run: (*trial).eachLayer},
	{name: "the blocks can be listed", run: (*trial).inspection},
	{name: "each layer tells what its backend knows", run: (*trial).layersTell},
	{name: "what is withheld is in no peak", run: (*trial).withholding},
	{name: "an account follows its blocks", run: (*trial).accounting},
	{name: "a live block can be checked and stays live", run: (*trial).liveCheck},
}

// layers lists the stack from the outside in.
func (t *trial) layers() []core.Resource {
	t.Helper()
	var all []core.Resource
	for r := t.Resource; r != nil; r = r.Unwrap() {
		if all = append(all, r); len(all) > 100 {
			t.Fatalf("%v unwraps without end", t.Resource)
		}
	}
	return all
}

func (t *trial) layersAgree() {
	all := t.layers()
	for i, r := range all {
		t.check(r.Ordinal() == t.Resource.Ordinal(), "layer %v serves device %d, the stack %d", r, r.Ordinal(), t.Resource.Ordinal())
		t.check(r.String() != "", "layer %d has no name", i)
		if i+1 < len(all) {
			t.check(strings.Contains(r.String(), all[i+1].String()), "%q does not name its upstream %q", r, all[i+1])
			t.check(r.Unwrap() == all[i+1], "%v unwraps to something else each time", r)
		}
	}
	t.check(core.Base(t.Resource) == all[len(all)-1], "the base of %v is %v", t.Resource, core.Base(t.Resource))
}

func (t *trial) layersNarrow() {
	all := t.layers()
	for i, r := range all[:len(all)-1] {
		widened := r.Features() &^ all[i+1].Features() &^ layersOwn
		t.check(widened == 0, "%v claims %v, which %v cannot do", r, widened, all[i+1])
	}
	t.check(t.Resource.Features() == t.Features, "the features changed to %v", t.Resource.Features())
}

// eachLayer goes around the outer layers, which must not be confused by
// notices of blocks that they never saw.
func (t *trial) eachLayer() {
	for _, r := range t.layers() {
		b, err := r.Allocate(t.ctx, core.Request{Bytes: kib, Tag: "layer"})
		t.succeed(err, "allocate through "+r.String())
		t.check(b.Requested == kib && r.State(b.ID) == core.Live, "%v allocated %+v", r, b)
		_, err = r.Deallocate(t.ctx, b.ID)
		t.succeed(err, "deallocate through "+r.String())
		t.drain()
		t.check(r.State(b.ID) == core.Freed, "%v says that the block is %v", r, r.State(b.ID))
	}
}

func (t *trial) inspection() {
	inspector := t.Resource.Inspect()
	b := t.alloc(700, core.DefaultStream)
	other := t.alloc(700, core.DefaultStream)
	found := 0
	inspector.Blocks(func(info core.BlockInfo) bool {
		if info.Block.ID.Generation == b.ID.Generation {
			found++
			t.check(info.Block.Requested == 700 && info.Block.Tag == b.Tag && info.Block.State == core.Live, "block %+v is listed as %+v", b, info.Block)
		}
		return true
	})
	t.check(found == 1, "the block is listed %d times", found)
	visits := 0
	inspector.Blocks(func(core.BlockInfo) bool { visits++; return false })
	t.check(visits == 1, "the listing went on to %d blocks after it was told to stop", visits)
	t.free(b)
	t.free(other)
}

// layersTell asks for what does not change meanwhile.
func (t *trial) layersTell() {
	stream, base := t.Streams(t), core.Base(t.Resource).Inspect()
	b := t.alloc(kib, stream)
	const invented = core.StreamID(1 << 62)
	_, known := base.Unordered(b.ID, stream, core.Read)
	for _, r := range t.layers() {
		i := r.Inspect()
		unit := i.IsolationGranularity()
		t.check(unit == base.IsolationGranularity() || !r.Features().Has(core.Isolation), "%v says that the unit of isolated blocks is %d, its backend %d", r, unit, base.IsolationGranularity())
		t.check(i.Leased(stream), "%v says that a leased stream is not", r)
		t.check(i.Leased(invented) == base.Leased(invented), "%v says of a stream that was never leased: %v", r, i.Leased(invented))
		t.check(i.Adopted(b.ID, stream) == base.Adopted(b.ID, stream), "%v says that the stream is adopted: %v", r, i.Adopted(b.ID, stream))
		_, told := i.Unordered(b.ID, stream, core.Read)
		t.check(told == known, "%v knows what is ordered: %v; its backend: %v", r, told, known)
	}
	t.free(b)
}

// withholding allocates two blocks, of which the owner has one at a time.
func (t *trial) withholding() {
	first := t.alloc(mib, core.DefaultStream)
	peak := t.Resource.Stats().PeakRequested
	t.Resource.Withhold(first.ID, core.Quarantined)
	t.Resource.Withhold(first.ID, core.Quarantined)
	t.check(t.Resource.State(first.ID) == core.Live, "a block that is withheld is %v", t.Resource.State(first.ID))
	second := t.alloc(mib, core.DefaultStream)
	t.check(t.Resource.Stats().PeakRequested == peak, "the peak was %d and is %d, with a block that its owner has given back", peak, t.Resource.Stats().PeakRequested)
	t.free(first)
	t.free(second)
}

// accounting has two blocks of an account live at once, and another of no account.
func (t *trial) accounting() {
	a := core.NewAccount()
	allocate := func() core.Block {
		b, err := t.allocate(core.Request{Bytes: mib, Stream: core.DefaultStream, Tag: "account", Account: a})
		t.succeed(err, "allocate for an account")
		return b
	}
	first, second := allocate(), allocate()
	others := t.alloc(mib, core.DefaultStream)
	t.free(first)
	third := allocate()
	t.Resource.Withhold(second.ID, core.Quarantined)
	t.free(second)
	fourth := allocate()
	t.free(third)
	t.free(fourth)
	t.free(others)
	p := a.Peak()
	t.check(p.Requested == 2*mib && p.Bytes >= 2*mib, "two blocks at a time of %d bytes make a peak of %d requested, %d in all", mib, p.Requested, p.Bytes)
	t.check(a.Peak().ByteSeconds == p.ByteSeconds, "what was given back is still live for the account")
}

func (t *trial) liveCheck() {
	b := t.alloc(kib, core.DefaultStream)
	t.succeed(t.Resource.CheckLive(t.ctx), "check what is live")
	t.succeed(t.Resource.Drain(t.ctx), "drain")
	t.check(t.Resource.State(b.ID) == core.Live, "a block that was checked is %v", t.Resource.State(b.ID))
	t.free(b)
}
