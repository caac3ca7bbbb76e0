// Package incident is the stable written form of findings: one JSON object for
// each memory bug that was seen, with what surrounded it. [Writer] writes them
// into a folder that it keeps small, [Read] reads one, and [Incident.String]
// prints it for people.
//
// # The schema
//
// A file holds one object. The field "schema" is its version, now [Schema]. A
// version only gains fields; a reader skips those that it does not know and
// refuses a version that it does not know. Absent fields are zero.
//
//	schema      int     the version of the form
//	number      uint    the incident's number in its process, from 1
//	finding     object  the bug; see below
//	repeats     object  since, omitted: how many findings like it were left out
//	                    before it, and since when
//	process     object  pid, program, go, fencepost: the process that saw it
//	device      object  kind, ordinal, name, uuid, pci_bus_id
//	stack       string  the layers, as a stack prints itself
//	guard       object  mode, policy, hunt_tags, numbers: the guard's settings and counters
//	memory      object  the device's memory: bytes by state, budget, pool, counters
//	history     array   log records of the streams and the block concerned, oldest first
//	completed   string  when the file was written again, with what was not known at first
//	incomplete  string  what of the surroundings is missing, and whether it is still to come
//
// A file is there as soon as the finding is known. What surrounds it is asked of
// a runtime that may be busy: what does not come in a moment is left out, which
// incomplete says, and the file is replaced in one step when it comes.
//
// The finding:
//
//	kind, source, text  string  what happened, and who saw it
//	time         string  when it was seen
//	victim       object  tag, generation, ptr, requested, bytes, align, stream, device, state
//	damage       object  offset, bytes, expected, seen: the first bad byte relative to the
//	                     victim's ptr, how many differ, what was expected and what was there
//	alloc_stack  array   where the victim was allocated, "function file:line" a frame
//	free_stack   array   where it was freed
//	call_stack   array   where the call was made that the finding is about
//	uses         array   the victim's last declared uses, newest first
//	older_uses   uint    how many more there were and are forgotten
//	suspects     array   the launches that may have done it, likeliest first; of a lost device
//	                     those that were in flight
//	more_suspects bool   whether there may be suspects that are not named
//	trace_id, span_id  string  the exported span that tells of it, if there is one
//	trace        string  how much of that trace was exported: full, or event if only that span
//	error        object  text, and classes: the names of all errors of package core that it matches
//
// A use is launch_id, launch, stream, access, trace_id, span_id, time and tags.
// A record of the history is time, duration_ns, op, layer, device, stream, ptr,
// generation, tag, requested, bytes, launch, access, uses, waits, elided,
// relieved and error.
//
// Addresses and single bytes are strings of hexadecimal digits with 0x in
// front, traces and spans the hexadecimal digits of W3C trace context; times
// are RFC 3339 with nanoseconds, in UTC; sizes are bytes. Numbers are whole and
// take up to 64 bits, so a reader must not go through floating point.
package incident
