// Package device is what the example service does on the device: it sorts
// columns and joins them, each request's work as one job under a reservation.
//
// A job goes the same way every time, and this is the order that matters:
//
//  1. The memory of the whole job is reserved before anything is held, so that
//     no job waits for memory while it sits on some.
//  2. Streams are leased, and columns are allocated from the reservation.
//  3. Copies and kernels are launched, each with what it reads and writes; the
//     runtime queues the waits between the streams.
//  4. Everything is given back, whatever happened. Nothing waits for the device
//     to do so: frees are queued behind the work that uses the memory.
//
// The kernels are those of the demo, which fencepost.Open registers on the
// simulated device. A program of your own loads its PTX with cuda.LoadModule,
// and registers Go versions with sim.Device.RegisterModule if it wants to run
// without a GPU.
package device
