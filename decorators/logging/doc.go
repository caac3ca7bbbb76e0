// Package logging is the layer that writes down what a device was asked: one
// record for each operation, who, what, when, how long and with what result.
// It follows the original's LoggingResource.
//
// # Records
//
// A [Record] is a [oplog.Event] and a sequence number. At the level
// [Operations] there is one for each allocate, deallocate, reserve,
// release_claim, reap, drain and refusal, and for each job that has ended; the level [Uses] adds prepare,
// finish, abort, record and release, and device: what the device did of a launch that is timed. A failed allocation has the bytes that
// were asked for and neither address nor generation. A record of a launch
// names its first block and carries the sums of the sizes of all its blocks.
//
// Sequence numbers are unique and increasing in the process. An allocation
// takes its number after the upstream returned, a deallocation before the
// upstream is called: of two records with one address, the free of the old
// block always has the smaller number, however late its goroutine comes to
// report it. The layer itself keeps no books about blocks, so a reused
// address can't confuse it. A gap in the numbers is a record that was lost, or
// one that went to the sinks of another resource. Where rings are the only
// sinks there are no numbers: a ring orders its records by their times, an
// allocation by its end and everything else by its beginning.
//
// # Cost
//
// A logged operation reads the monotonic clock twice, an operation that is not
// logged never. A step of the time of day shows in records a tenth of a second
// later at most, and in no duration. Nothing is formatted on the caller's goroutine and
// nothing is allocated there: a record is a value that is copied into the sink, and where
// a ring is the only sink an allocation, a free and a release are written right into it.
//
// # Sinks
//
//   - [Ring] keeps the newest records in memory.
//   - [NewJSONSink] writes JSON lines, [NewCSVSink] the CSV of RMM's logging
//     adaptor, [NewSlogSink] to a structured logger. They are asynchronous: a
//     bounded queue takes the record, one goroutine formats and writes. A full
//     queue drops the record and counts it; the caller never waits for a
//     writer.
//
// A sink belongs to its maker and may serve several resources. Closing
// it is the maker's duty; the layer flushes and closes nothing.
//
// # JSON lines
//
// One object a line. Always present:
//
//	time         string  when the operation began, RFC 3339 with nanoseconds, UTC
//	mono_ns      int     the same instant on the monotonic clock, nanoseconds since process start
//	seq          uint    the sequence number
//	op           string  "allocate", "deallocate", "reap", ...: oplog.Op.String
//	device       int     the device's ordinal
//	stream       uint    the stream that the operation named, 0 for the default stream
//	tag          string  the tag, empty where the operation has none
//	requested    uint    bytes that the outermost caller asked for
//	bytes        uint    bytes that this layer was asked for
//	duration_ns  int     how long the operation took, nanoseconds
//	layer        string  who reports: "logging", "budget", ...
//
// Present where it applies:
//
//	ptr          string  device address, "0x..."; with a block
//	generation   uint    the block's generation; with a block
//	error        string  the error, at most 256 bytes; absent after a success
//	kind         string  kind of the error; with error: out_of_budget, claim_exceeded, out_of_memory,
//	                     driver, stream_misuse, use_after_free, out_of_bounds,
//	                     invalid_request, closed, canceled, deadline_exceeded, other
//	relieved     bool    true for a refusal that a layer above cured
//	launch       string  name of the launch; for prepare, finish, abort and record
//	access       string  combined access "read", "write", "read_write"; likewise
//	uses         int     blocks used; likewise
//	waits        int     waits queued; likewise
//	elided       int     waits not needed; likewise
//	launch_id    uint    number of the launch, the same in prepare and end; likewise, but for a refused prepare
//	waited_launches, waited_blocks
//	             []uint  what the first four waits were for: launches by number, and blocks (their
//	                     allocation, or a use recorded without a launch) by generation; if there was a wait
//	timed        object  for device, whose time and duration are the device's: how long before that the host prepared it
//	                     (prepared_ns) and the device came to its waits (reached_ns), how far the times may be from the
//	                     host's clock (bound_ns), which of the device's streams it was (on), how many launches it stands for (weight), and its waits in their order:
//	                     stream, launch_id, launch, trace_id and span_id of what was waited for (block: that block's
//	                     allocation), because of which block (generation, tag), what that did with it (access), what this
//	                     launch does (own) and how long it was held up (held_ns, -1 in the sum unattributed_ns)
//	job          object  for job, whose time is when it began, requested and bytes its peak, and stream its first: bytes times seconds
//	                     (requested_seconds, byte_seconds), all that it allocated (allocated_requested, allocated_bytes,
//	                     allocated_blocks), its reservation and what was not live of that (reserved, unused_byte_seconds), what it was
//	                     known to need (predicted), its waits
//	                     (waited_for_memory_ns, waited_for_stream_ns, waited_on_device_ns) and how many launches it made and
//	                     were timed of them (launches, timed_launches)
//	trace_id, span_id
//	             string  the exported span that it belongs to, in hexadecimal; if there is one
//	trace        string  with them: "full" if the trace was sampled, "event" if of a trace that
//	                     was not only the span of this refusal was exported
//
// A slog record has the same attributes, with its own time and duration as a
// duration; mono_ns, and of launches launch_id and what was waited for, are left out. Its handler is
// called with a context for which [core.SpanOf] says the span.
package logging
