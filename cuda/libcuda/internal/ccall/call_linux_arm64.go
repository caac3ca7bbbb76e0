package ccall

import (
	"runtime"

	"github.com/ebitengine/purego"
)

// Call makes the call of f, and those behind it, and blocks as long as they do.
// No function may call back into Go. It allocates nothing and is safe for
// concurrent use.
func Call(f *Frame) {
	if f.Next != nil {
		runtime.LockOSThread() // each call is a crossing of its own
		defer runtime.UnlockOSThread()
	}
	for ; f != nil; f = f.Next {
		f.Ret, _, _ = purego.SyscallN(f.Fn, f.Args[:]...)
		if f.Must && uint32(f.Ret) != 0 {
			return
		}
	}
}
