// Package device is what the example service does on the device: it sorts
// columns and joins them, each request's work as one job under a reservation.
//
// Every job is one call of [fencepost.Runtime.Do], under a reservation of all its
// memory, so that no job waits for memory while it sits on some. Copies and
// launches say what they read and write, and the runtime queues the waits between
// streams. Everything is given back by Do, whatever happened.
//
// The kernels, in PTX and in Go, are those of the package kernels beside this one.
package device
