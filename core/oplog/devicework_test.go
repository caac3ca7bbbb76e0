package oplog_test

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/core/oplog"
)

// Copies share nothing with what is used again.
func TestADeviceWorkIsCopiedWhole(t *testing.T) {
	w := oplog.DeviceWork{Launch: 1, Name: "merge", Waits: []oplog.DeviceWait{{Launch: "sort"}, {Launch: "join"}}}
	var kept oplog.DeviceWork
	w.CopyTo(&kept)
	e := w.Event(3)
	first := &kept.Waits[0]
	w.Launch, w.Waits[0].Launch = 2, "changed"
	if kept.Launch != 1 || len(kept.Waits) != 2 || kept.Waits[0].Launch != "sort" || e.Device.Waits[0].Launch != "sort" || e.LaunchID != 1 || e.Ordinal != 3 || e.Waits != 2 {
		t.Errorf("%+v, %+v", kept, *e.Device)
	}
	w.Waits = w.Waits[:1]
	w.CopyTo(&kept)
	if len(kept.Waits) != 1 || &kept.Waits[0] != first || kept.Waits[0].Launch != "changed" || kept.Launch != 2 {
		t.Errorf("the memory was not used again: %+v", kept)
	}
}
