// Package web is the HTTP side of the example service: it reads requests,
// bounds what they may cost, runs them on the device and says no in a way that
// explains itself.
//
// What a request passes, in order, and what each step bounds:
//
//	tracing         the request's span, under which the device's spans go
//	metrics         its duration, with the trace as exemplar
//	admission       how many requests are in the house: 429
//	deadline        how long it may take in all: 408 while uploading, 504 later
//	input           how large it may be, and what it must look like: 4xx
//	a turn          how many are on the device; the rest wait here
//	a reservation   the device memory of the whole request: 503, 413
//
// Admission comes before the body is read, so that it bounds the memory of
// the host; the reservation comes before anything is allocated, so that it
// bounds that of the device.
package web
