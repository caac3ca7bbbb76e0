package size_test

import (
	"math"
	"testing"

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
