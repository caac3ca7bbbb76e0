// Package cures answers one question for a whole stack: what is tried when memory is short.
//
// Each stack has one [Room], which its backend makes. A request that lacks memory begins a [Search].
// The search tries the cures in one order, until one of them makes another try worthwhile:
//
//  1. Reap: the driver is asked once which frees the device has passed.
//  2. Look: the account that refused reads its books again. Bytes may have been on their way.
//  3. Quarantine: the debug guard gives up a part of what it holds back.
//  4. Program: the program's own function may give memory back.
//  5. Device: the request waits for freed memory that the device has not passed.
//
// Two steps lie outside of the list. A stream's own credit and the growth of the pool are part of a
// try: a request lacks memory only after them. The debug guard leaves red zones out last, with a
// request of its own.
//
// Allocations, reservations and jobs in line go through the same room. Waiters share one poll of
// the device. A layer gives its charge back while a search lasts.
//
// No function of this package is called under a lock of a layer. The program's code is called
// through package usercode.
package cures
