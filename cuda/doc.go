// Package cuda puts the contract of package core on a device: stream leases,
// resources, typed memory and kernels, over the seam of package
// driver. It holds no code of a particular driver, so all of it runs the same
// on a GPU and on the simulated device.
//
// Which stream waits for which work is decided in internal/fence. What is here finds
// the blocks of a launch, has each announced there, and keeps what the engine does not
// know of: blocks with their memory, leases, queued frees, and the books.
package cuda
