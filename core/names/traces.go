package names

// TraceIDKey and SpanIDKey are the fields by which log records name a span, in
// hexadecimal. Log stores find the trace of a record by these names. TraceKey
// says how much of that trace was exported: TraceFull or TraceEvent; a record without
// a span has none.
const (
	TraceIDKey = "trace_id"
	SpanIDKey  = "span_id"
	TraceKey   = "trace"

	// TraceFull: the trace was sampled.
	TraceFull = "full"
	// TraceEvent: the trace was not sampled, and the span that the record names
	// was exported all the same, because it tells of a refusal, a failure or a finding. The
	// rest of its trace may not exist anywhere.
	TraceEvent = "event"
)
