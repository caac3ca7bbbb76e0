// Package libcuda is [driver.Driver] on NVIDIA's CUDA driver library,
// libcuda.so.1, which is loaded at run time: building needs neither the CUDA
// toolkit nor cgo, and a program runs on machines that have no GPU.
//
// # Contexts
//
// A [Device] works in the primary context of its device, the one that the
// CUDA runtime and every library over it use, so addresses, streams and events
// can be exchanged with them. CUDA keeps a current context for each thread of
// the operating system, and goroutines wander between threads. Most calls name
// a stream or event, which says which context they mean, and the driver takes
// them on any thread: they are made as they are. Calls that need the current
// context, those that name nothing and those on the legacy default stream,
// lock the thread, push the context, call, and pop it again: what another
// library has made current there is never disturbed.
//
// Not every driver version takes calls without a current context, and on a
// thread where another library left its own context current some are refused
// too. Both refusals, CUDA_ERROR_INVALID_CONTEXT and CUDA_ERROR_INVALID_HANDLE,
// are answered before anything is done, so such a call is repeated with the
// context pushed; if that changes the answer the device pushes it for every
// call from then on.
//
// # Calls
//
// Arguments and results travel in pooled frames on Go's heap, as C must not be
// given addresses on a goroutine's stack, which may move. The calls of a launch
// path allocate nothing.
//
// Symbols are looked up one at a time. A symbol that the driver does not have
// disables the calls that need it, with an error that names it and matches
// errors.ErrUnsupported.
package libcuda
