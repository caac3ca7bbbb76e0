package ccall

import "github.com/ebitengine/purego"

// Call makes the call of f and blocks as long as it does. The function must
// not call back into Go. It allocates nothing and is safe for concurrent use.
func Call(f *Frame) {
	f.Ret, _, _ = purego.SyscallN(f.Fn, f.Args[:]...)
}
