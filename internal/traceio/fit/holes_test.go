package fit_test

import (
	"fmt"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
	"github.com/fencepost-gpu/fencepost/internal/traceio/fit"
)

// A block of which there is only the free counts from as early as it is sure to have been live: from the beginning of a log that
// lacks nothing else, from the first that is told of its stream in a process's history, and for its end alone in a log with holes.
func TestABlockThatWasThereBeforeCountsAsFarAsThatIsSure(t *testing.T) {
	for name, c := range map[string]struct {
		numbers [4]int
		holes   alloctrace.Holes
		peak    uint64
	}{
		"lacks its beginning": {[4]int{5, 6, 7, 8}, alloctrace.NoHoles, 28 * mib},
		"has no numbers":      {[4]int{}, alloctrace.UnknownHoles, 20 * mib},
		"has holes":           {[4]int{1, 2, 7, 8}, alloctrace.SomeHoles, 20 * mib},
	} {
		row := func(i int, op string, stream, generation, size int) string {
			return fmt.Sprintf(`{"seq":%d,"op":%q,"mono_ns":%d,"stream":%d,"generation":%d,"requested":%d,"bytes":%[6]d}`+"\n", c.numbers[i], op, i, stream, generation, size*mib)
		}
		log := row(0, "allocate", 1, 11, 20) + row(1, "deallocate", 1, 11, 20) + row(2, "allocate", 2, 12, 2) + row(3, "deallocate", 2, 3, 8)
		trace := read(t, log)
		r := must.Get(fit.Predict(t.Context(), trace, fit.Machine{}))(t)
		if trace.Holes != c.holes || r.PeakLive != c.peak || r.Earlier != 8*mib || !r.LowerBounds || r.Uncertain != (c.holes == alloctrace.UnknownHoles) {
			t.Errorf("a log that %s: holes %d, %+v", name, trace.Holes, r)
		}
	}
}
