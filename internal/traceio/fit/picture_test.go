package fit_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencepost-gpu/fencepost/internal/traceio/fit"
)

// A limit of what is printed is enough, and little more.
func TestAPrintedSizeIsAtLeastWhatItStandsFor(t *testing.T) {
	units := map[string]float64{"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64Range(0, 1<<rapid.IntRange(1, 48).Draw(t, "bits")).Draw(t, "n")
		var v float64
		var unit string
		if _, err := fmt.Sscan(fit.Size(n), &v, &unit); err != nil || units[unit] == 0 {
			t.Fatalf("%q is no size", fit.Size(n))
		}
		if printed := v * units[unit]; printed < float64(n) || printed > float64(n)+units[unit]/5 {
			t.Fatalf("%d is printed as %s", n, fit.Size(n))
		}
	})
	for n, want := range map[uint64]string{640: "640 B", 1 << 20: "1.0 MiB", 10 << 20: "10.0 MiB", 10<<20 + 1: "10.1 MiB",
		1<<30 - 1: "1.0 GiB", 3 << 29: "1.500 GiB"} {
		if got := fit.Size(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
