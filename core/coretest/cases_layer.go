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
	inspector, ok := core.Find[core.Inspector](t.Resource)
	t.check(ok, "no layer of %v can list its blocks, so leaks could not be named", t.Resource)
	if !ok {
		return
	}
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
