package fence

import (
	"testing"
	"unsafe"
)

// What streams write on every launch fills whole cache lines: Go's allocator
// then aligns it to them.
func TestRecordsShareNoCacheLine(t *testing.T) {
	const line = 64
	for name, bytes := range map[string]uintptr{
		"a point":          unsafe.Sizeof(Point{}),
		"a history's list": uintptr(cap(NewHistory().accesses)) * unsafe.Sizeof(Access{}),
		"a clock":          uintptr(cap(newClock())) * unsafe.Sizeof(clock{}[0]),
		"a plan's list":    uintptr(cap(newPlan().deps)) * unsafe.Sizeof(dependency{}),
		"what it releases": uintptr(cap(newPlan().gone)) * unsafe.Sizeof(goneRefs{}),
	} {
		if bytes%line != 0 {
			t.Errorf("%s: %d bytes", name, bytes)
		}
	}
}
