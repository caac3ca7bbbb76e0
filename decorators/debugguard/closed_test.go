package debugguard_test

import (
	"context"
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
)

// stalled is a fake whose first free takes until it is let go.
type stalled struct {
	*coretest.Fake
	frees            int
	arrived, release chan struct{}
}

func (s *stalled) Deallocate(ctx context.Context, id core.BlockID) (core.Block, error) {
	if s.frees++; s.frees == 1 {
		close(s.arrived)
		<-s.release
	}
	return s.Fake.Deallocate(ctx, id)
}

// A change of the mode that is freeing what was quarantined stops where it is when
// the guard is closed: what lies below is closed next.
func TestASwitchStopsWhenTheGuardIsClosed(t *testing.T) {
	b := newBench(t, debugguard.Off)
	up := &stalled{Fake: b.fake, arrived: make(chan struct{}), release: make(chan struct{})}
	b.guard = b.over(up, debugguard.Hunt)
	for range 5 {
		b.free(b.alloc(64))
	}
	switched := make(chan error)
	go func() { switched <- b.guard.SetMode(ctx, debugguard.Off) }()
	<-up.arrived
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := b.guard.Close(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Close says %v of a switch that does not end", err)
	}
	close(up.release)
	if err := <-switched; !errors.Is(err, core.ErrClosed) {
		t.Errorf("the switch: got %v, want %v", err, core.ErrClosed)
	}
	if err := b.guard.Close(ended); err != nil {
		t.Errorf("there is nothing to wait for: %v", err)
	}
	if q := b.guard.GuardStats().Quarantine.Blocks; up.frees != 1 || q != 4 {
		t.Errorf("%d blocks were freed, and %d are left", up.frees, q)
	}
	setting := b.guard.Setting()
	for what, err := range map[string]error{"SetMode": b.guard.SetMode(ctx, debugguard.Hunt), "Apply": b.guard.Apply(ctx, debugguard.Setting{Mode: debugguard.Sample})} {
		if !errors.Is(err, core.ErrClosed) {
			t.Errorf("%s: got %v, want %v", what, err, core.ErrClosed)
		}
	}
	if now := b.guard.Setting(); now != setting {
		t.Errorf("the setting was changed from %v to %v", setting, now)
	}
	if err := b.guard.Drain(ctx); err != nil { // which is asked for, and frees the rest
		t.Error(err)
	}
	if up.frees != 5 {
		t.Errorf("%d blocks were freed of 5", up.frees)
	}
}
