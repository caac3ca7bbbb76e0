package fit

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
	"github.com/fencepost-gpu/fencepost/traces"
)

// source is what places the blocks of a trace.
type source interface {
	Add(ptr, bytes, mark uint64)
	Take(bytes uint64) (uint64, bool)
	Give(ptr, mark uint64) (uint64, bool)
	Cut(bytes uint64, covered func(uint64) bool) (ptr, n, mark uint64, ok bool)
}

// played is the peaks of what a trace had live, and of what a source needed for it.
type played struct{ live, reserved, remapped uint64 }

func (p played) ratio() float64 { return float64(p.reserved) / float64(p.live) }

// play has a source place the blocks of a trace, as if the device were done with each
// at its free. What does not fit gets new addresses in a row; the pages there are wholly
// free ones from elsewhere, if remap is set and there are such, and else new ones.
func play(t *testing.T, rows []alloctrace.Row, s source, remap bool) (p played) {
	t.Helper()
	type block struct{ ptr, bytes uint64 }
	blocks := map[uint64]block{}
	var live, reserved uint64
	end := uint64(1) << 40
	grow := func(bytes uint64) {
		for n := uint64(0); n < bytes; n += devicePage {
			if remap {
				if _, _, _, ok := s.Cut(devicePage, func(uint64) bool { return true }); ok {
					p.remapped += devicePage
					continue
				}
			}
			reserved += devicePage
		}
		s.Add(end, bytes, 0)
		end += bytes
	}
	for _, row := range rows {
		switch b, known := blocks[row.Pointer]; {
		case row.Action == alloctrace.Allocate && row.Bytes > 0:
			ptr, ok := s.Take(row.Bytes)
			if !ok {
				grow(roundUp(row.Bytes, devicePage))
				if ptr, ok = s.Take(row.Bytes); !ok {
					t.Fatalf("line %d: %d bytes do not fit into as many new ones", row.Line, row.Bytes)
				}
			}
			blocks[row.Pointer] = block{ptr, row.Bytes}
			live += row.Bytes
		case row.Action == alloctrace.Free && known:
			delete(blocks, row.Pointer)
			live -= b.bytes
			s.Give(b.ptr, 0)
		}
		p.live, p.reserved = max(p.live, live), max(p.reserved, reserved)
	}
	return p
}

// TestARecordedProgramNeedsLittleMoreThanWithBestFit bounds the fragmentation where one fit
// serves all streams of a recorded program.
func TestARecordedProgramNeedsLittleMoreThanWithBestFit(t *testing.T) {
	for _, name := range traces.Names() {
		f := must.Get(traces.Open(name))(t)
		trace := must.Get(alloctrace.Read(name, f))(t)
		for _, c := range []struct {
			name  string
			remap bool
			most  float64
		}{
			{"pages stay", false, 1.15}, // best fit takes 1.16
			{"free pages move", true, 1.035},
		} {
			fit, best := play(t, trace.Rows, New(devicePage), c.remap), play(t, trace.Rows, &model{page: devicePage}, c.remap)
			t.Logf("%s, %s: reserved/live %.3f, with best fit %.3f; %d MiB moved, %d", name, c.name, fit.ratio(), best.ratio(), fit.remapped>>20, best.remapped>>20)
			if fit.ratio() > c.most || fit.ratio() > 1.005*best.ratio() {
				t.Errorf("%s, %s: reserved/live is %.3f, with best fit %.3f", name, c.name, fit.ratio(), best.ratio())
			}
		}
	}
}
