package core_test

import (
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

// A limit that was lowered, or a reservation, leaves more held than may be. More may be behind work
// then than a request could get.
func TestARefusalOfAPoolNamesNoMoreBehindWorkThanIsFree(t *testing.T) {
	e := &core.OutOfMemoryError{Requested: 3 << 20, Held: 68 << 20, May: 64 << 20, Used: 12 << 20, Cached: 56 << 20,
		Behind: 54 << 20, Fragmented: 2 << 20, Cause: core.ShortageBehind, Bound: core.BoundBudget}
	if text := e.Error(); !strings.Contains(text, "52.0 MiB are free, but 52.0 MiB of that behind work") {
		t.Errorf("52 MiB are free and 54 MiB behind work: %s", text)
	}
}
