//go:build cgo

package cgocall

/*
#include <stdint.h>

#cgo noescape fencepost_call
#cgo nocallback fencepost_call
static uintptr_t fencepost_call(uintptr_t fn, uintptr_t a, uintptr_t b, uintptr_t c) {
	return ((uintptr_t (*)(uintptr_t, uintptr_t, uintptr_t))fn)(a, b, c);
}
*/
import "C"

// Call calls fn with three arguments, which must not be addresses on a Go
// stack, and blocks as long as it does. fn must not call back into Go.
func Call(fn, a, b, c uintptr) uintptr {
	return uintptr(C.fencepost_call(C.uintptr_t(fn), C.uintptr_t(a), C.uintptr_t(b), C.uintptr_t(c)))
}
