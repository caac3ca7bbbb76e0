// Package ownwork marks launches of the runtime's own, of which it knows more than
// a declaration says. Anybody may call a launch copy.to_host, or declare a read and
// write all the same; a mark only this module can make.
package ownwork

// mark is the type of all marks. Nobody else can make a value of it.
type mark struct{ name string }

// ReadsOnly marks work in which the driver reads device memory and writes none of
// this device: a copy to the host, and the source's side of a copy between devices.
// It is a value of core.UseRequest.Mark.
var ReadsOnly any = &mark{"reads only"}
