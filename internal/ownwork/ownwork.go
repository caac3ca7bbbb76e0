// Package ownwork names launches of the runtime's own, of which it knows more than
// a declaration says. Anybody may call a launch copy.to_host, or declare a read and
// write all the same; a value of this package only this module has.
package ownwork

// kind is a kind of own work. Nobody else can make a value of it.
type kind struct{ name string }

// ReadsOnly is work in which the driver reads device memory and writes none of
// this device: a copy to the host, and the source's side of a copy between devices.
// It is a value of core.UseRequest.OwnWork.
var ReadsOnly any = &kind{"reads only"}
