// Package budget is the byte ledger of a device: a decorator that keeps what
// is allocated through it under a limit, sets bytes aside for whole requests
// before they start, and explains each refusal.
//
// # What is charged
//
// A block is charged with Request.Bytes, padding of the layers above
// included, from before its memory is asked for until the upstream says by
// exact notice (core.Listener) that the device has passed its free. A block
// given back and not yet passed is pending and stays charged. The one
// exception is an allocation on the very stream that the bytes are pending
// on: the device runs a stream in order, so by the time of the allocation
// the bytes are free, and the ledger lends them. An isolated block is lent
// nothing: its memory is the host's to take, now. Without that a service that
// churns above half of its limit would be refused by timing. What is lent is
// lent once, and a claim lends to its own requests only.
//
// # Reservations
//
// [Resource.Reserve] takes a whole claim from the limit or refuses it. A
// request that names the claim draws its Requested bytes from it; what the
// layers above added to that (Bytes-Requested) is charged to the general
// ledger. Drawn bytes return to the claim when they are released, and to the
// general ledger if the claim was given back meanwhile.
//
// # Refusals
//
// Allocate and Reserve never wait. When bytes are short they ask the
// upstream once what has been passed by now, try once more, and refuse with
// core.OutOfBudgetError. A request of which the device itself says that it
// has no memory gets the same second chance.
//
// # Features
//
// A decorator passes on what its upstream can do and never claims more.
// Reservations are the exception that proves it: they are implemented here
// and need nothing of the upstream, so a budget adds core.Reservations.
package budget
