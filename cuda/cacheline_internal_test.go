package cuda

import (
	"testing"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/core"
)

// What streams write on every launch fills whole cache lines: Go's allocator
// then aligns it to them.
func TestRecordsShareNoCacheLine(t *testing.T) {
	const line = 64
	for name, bytes := range map[string]uintptr{
		"block": unsafe.Sizeof(block{}), "intent": unsafe.Sizeof(core.Intent{}), "a use": unsafe.Sizeof(core.PreparedUse{}),
	} {
		if bytes%line != 0 {
			t.Errorf("%s: %d bytes", name, bytes)
		}
	}
}
