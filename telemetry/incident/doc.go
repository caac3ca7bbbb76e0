// Package incident is the stable written form of findings: one JSON object for
// each memory bug that was seen, with what surrounded it. [Writer] writes them
// into a folder that it keeps small, [Read] reads one, and [Incident.String]
// prints it for people.
//
// # The schema
//
// A file holds one object, with the members that the tags of [Incident] name. The
// member "schema" is its version, now [Schema]. A version only gains members; a reader
// skips those that it does not know and refuses a version that it does not know. Absent
// members are zero.
//
// Addresses and single bytes are strings of hexadecimal digits with 0x in
// front, traces and spans the hexadecimal digits of W3C trace context, frames of a
// stack "function file:line"; times are RFC 3339 with nanoseconds, in UTC; sizes are
// bytes. Numbers are whole and take up to 64 bits, so a reader must not go through
// floating point.
//
// A file is written once, when what surrounds the finding is known. That is asked of a
// runtime that may be busy: what does not come within two seconds is left out, and
// "incomplete" says so.
package incident
