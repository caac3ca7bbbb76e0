// Package liveview is a page that shows a device's memory as it is now: bytes
// by tag against the budget, the addresses of the blocks, the streams with
// their leases and fences, findings, refusals and health. [View] serves it,
// usually at /debug/gpumem/. The page loads nothing from anywhere else.
//
// # The state
//
// The page asks for the state about once a second, keeps what it draws of the
// past itself, and the server keeps nothing of it: a page that is not open
// costs nothing. The state makes no device call and has a bounded size,
// whatever the number of blocks, streams, tags, findings and refusals:
//
//	tags       the 64 largest, and the sum of the others
//	blocks     the 2048 largest one by one; all others summed up in at most
//	           1024 equal parts of the address space in use
//	streams    64, leased ones first
//	findings   the newest 32
//	refusals   the newest 32
//	texts      are cut
//
// The address map is made for all pages together, and not made anew before
// twenty times the time has passed that it took: it costs at most a twentieth
// of a processor, and is older where there are many blocks. The page says how old.
//
// # Who may see it
//
// It shows tags, names of launches, addresses and stacks of the program. It
// changes nothing. Who may reach it is the mount's to say: the loopback
// interface by default.
package liveview
