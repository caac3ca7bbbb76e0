// Package liveview is a page that shows a device's memory as it is now: bytes
// by tag against the budget, the addresses of the blocks, the streams with
// their leases and fences, findings, refusals and health. [View] serves it,
// usually at /debug/gpumem/. The page loads nothing from anywhere else.
//
// # The state
//
// The page asks for the state about once a second and keeps what it has seen.
// What it has not seen it asks for when it is opened, and the server makes that of
// the log and of what is held now: a page that is not open costs nothing. The state makes no device call and has a bounded size,
// whatever the number of blocks, streams, tags, findings and refusals:
//
//	tags       the 64 largest, and the sum of the others
//	blocks     the 2048 largest one by one; all others summed up in at most
//	           1024 equal parts of the address space in use
//	streams    64, leased ones first
//	findings   the newest 32
//	refusals   the newest 32
//	timeline   10 seconds and 1024 launches on the device, and the 5 requests that
//	           lost most to others there
//	past       300 points of 15 minutes, of 16 tags and the sum of the others
//	a map of a stretch   as that of all, in at most 4096 parts of the stretch
//	texts      are cut
//
// The address map is made for all pages together, and not made anew before
// twenty times the time has passed that it took: it costs at most a twentieth
// of a processor, and is older where there are many blocks. The page says how old.
//
// # Who may see it
//
// It shows tags, names of launches, addresses and stacks of the program. It
// changes nothing by itself: what it offers to switch or to make is the mount's,
// beside it. Who may reach it is the mount's to say: the loopback
// interface by default.
package liveview
