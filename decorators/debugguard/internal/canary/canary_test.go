package canary

import (
	"math"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

func TestPoisonIsNaNInEveryLane(t *testing.T) {
	for g := core.Generation(1); g < 10_000; g++ {
		p := poisonPattern(g)
		if !math.IsNaN(math.Float64frombits(p)) {
			t.Fatalf("%#x is a float64", p)
		}
		for lane := range 2 {
			if f := math.Float32frombits(uint32(p >> (32 * lane))); f == f {
				t.Fatalf("%#x has a float32", p)
			}
		}
		for lane := range 4 {
			h := uint16(p >> (16 * lane))
			if h&0x7C00 != 0x7C00 || h&0x03FF == 0 || h&0x7F80 != 0x7F80 || h&0x007F == 0 {
				t.Fatalf("%#x has a float16 or bfloat16", p)
			}
		}
	}
}

func TestRedZonePatternsDiffer(t *testing.T) {
	seen := map[uint64]bool{}
	for g := core.Generation(1); g < 10_000; g++ {
		for _, side := range []zone{leftZone, rightZone} {
			p := redPattern(g, side)
			if seen[p] {
				t.Fatalf("pattern %#x comes twice", p)
			}
			seen[p] = true
			for i := 0; i < 64; i += 8 {
				if b := byte(p >> i); b == 0 || b == 0xFF {
					t.Fatalf("pattern %#x has a byte that stray writes write", p)
				}
			}
		}
	}
}

func TestLayout(t *testing.T) {
	for _, body := range []uint64{1, 8, 63, 64, 65, 255, 256, 257, 1 << 30} {
		for _, red := range []uint64{1, 16, 256, 300, 4096} {
			l, ok := LayoutFor(body, red, false)
			if !ok || l.Left < red || l.Right < red || l.Left%core.DefaultAlign != 0 || l.Total()%core.DefaultAlign != 0 {
				t.Errorf("body %d, red zone %d: %+v", body, red, l)
			}
			for _, whole := range []bool{true, false} {
				for _, r := range l.Poison(nil, 1, whole) {
					if r.Ptr < l.Start() || r.Ptr+r.Bytes > l.Start()+body {
						t.Errorf("poison %+v outside %+v", r, l)
					}
				}
			}
		}
	}
	for _, body := range []uint64{math.MaxUint64, math.MaxUint64 - 1, math.MaxUint64 - 256} {
		for _, thrifty := range []bool{false, true} {
			if l, ok := LayoutFor(body, 256, thrifty); ok {
				t.Errorf("body %d: %+v", body, l)
			}
		}
	}
}

func TestAThriftyLayoutTakesNoMoreThanTheLeftZoneWhereRoundingLeavesTheRight(t *testing.T) {
	const redZone = 256 // the guard's default
	for body := uint64(1); body <= 1024; body++ {
		l, ok := LayoutFor(body, redZone, true)
		slack := RoundUp(body, core.DefaultAlign) - body
		want := RoundUp(body, core.DefaultAlign) + core.DefaultAlign
		if slack < enoughSlack {
			want += core.DefaultAlign
		}
		if !ok || l.Total() != want || l.Right < enoughSlack || l.Left != redZone {
			t.Fatalf("body %d with a slack of %d: %+v, want %d in all", body, slack, l, want)
		}
	}
	if l, _ := LayoutFor(100, 8, true); l.Right < 8 || l.Total() != 512 {
		t.Errorf("a small red zone: %+v", l)
	}
	if l, _ := LayoutFor(100, 4096, true); l.Right < 4096 {
		t.Errorf("a red zone that was asked for was taken away: %+v", l)
	}
}
