package size_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/internal/size"
)

func TestASizeHasOneDecimalOfTheUnitInWhichItIsRead(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 B", 1: "1 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 1<<20 - 1: "1.0 MiB", 1023 << 20: "1023.0 MiB",
		1<<30 - 1: "1.0 GiB", 1 << 30: "1.0 GiB", 3 << 39: "1.5 TiB", math.MaxUint64: "16777216.0 TiB",
	} {
		if got := size.Of(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

// Numbers of one message that differ read differently, and those that are the same alike. One
// decimal is enough where that tells them apart.
func TestFiguresOfOneMessageThatDifferReadDifferently(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 5))
	for range 1000 {
		var all []uint64
		near := random.Uint64() >> random.IntN(60)
		for range 1 + random.IntN(8) {
			all = append(all, near+random.Uint64N(1<<random.IntN(40)), random.Uint64()>>random.IntN(64), near)
		}
		of := size.Figures(all...)
		for _, a := range all {
			alike := false
			for _, b := range all {
				if (of(a) == of(b)) != (a == b) {
					t.Fatalf("%d is %q, and %d is %q, of %v", a, of(a), b, of(b), all)
				}
				alike = alike || a != b && size.Of(a) == size.Of(b)
			}
			if !alike && of(a) != size.Of(a) {
				t.Fatalf("%d is %q though %q is enough, of %v", a, of(a), size.Of(a), all)
			}
		}
	}
	of := size.Figures(9<<20+1<<17, 9<<20+1<<17+1<<14, 1<<30, 1<<30-1, 5<<20)
	for n, want := range map[uint64]string{9<<20 + 1<<17: "9.12 MiB", 9<<20 + 1<<17 + 1<<14: "9.14 MiB", 1 << 30: "1073741824 B",
		1<<30 - 1: "1073741823 B", 5 << 20: "5.0 MiB"} {
		if got := of(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
