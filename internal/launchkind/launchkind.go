// Package launchkind names kinds of launches that the runtime makes itself, of which it
// knows more than a declaration says. Any program may call a launch copy.to_host, or
// declare a read and write all the same; a value of this package only this module has.
package launchkind

// kind is a kind of launch. No other package can make a value of it.
type kind struct{ name string }

// ReadsOnly is work in which the driver reads device memory and writes none of
// this device: a copy to the host, and the source's side of a copy between devices.
// It is a value of core.UseRequest.OwnWork.
var ReadsOnly any = &kind{"reads only"}
