package fence

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// Blocks that share a ready point come and go by the references that the stream keeps, and by others. The stream
// always knows how many share it, records it only for those, and has it back when they are gone.
func TestKeptReferencesAreNoSharers(t *testing.T) {
	drv, s := new(countingNull), new(Stream)
	NewOrder(drv, false).Add(s, 0, false, new(Counts))
	for _, left := range []int{0, 1} {
		s.Lock()
		p, reserve, err := s.PointForAllocation(1)
		must.Do(t, err)
		blocks := []History{NewHistory()}
		blocks[0].Begin(s.ConfirmReadyPoint(p, reserve), core.SpanRef{})
		for range 2 * keptAtOnce {
			h := NewHistory()
			if at := s.PointAtHand(1); at == p {
				at.MayBeRecorded()
				h.Begin(at, core.SpanRef{})
				blocks = append(blocks, h)
			}
			if len(blocks)%3 == 0 { // others are freed at hand between
				blocks[len(blocks)-1].ReleaseOn(s)
				blocks = blocks[:len(blocks)-1]
			}
			if got := s.sharers(); int(got) != len(blocks) {
				t.Fatalf("%d sharers, want %d", got, len(blocks))
			}
		}
		for i := range len(blocks) - left {
			if i%2 == 0 {
				blocks[i].ReleaseOn(s)
			} else {
				blocks[i].Release()
			}
		}
		must.Do(t, s.Flush())
		if recorded := p.state.Load() == recorded; recorded != (left > 0) || s.readyPoint != nil || s.kept != 0 {
			t.Errorf("%d left: recorded %v, %d kept", left, recorded, s.kept)
		}
		s.Unlock()
		for i := range left {
			blocks[len(blocks)-1-i].Release()
		}
		if got := p.refs.Load(); got != 0 {
			t.Errorf("%d references are left", got)
		}
	}
	if made := drv.created.Load(); made != 1 {
		t.Errorf("%d events were made for one point at a time", made)
	}
}
