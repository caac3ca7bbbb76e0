// Package telemetry makes a stack of GPU memory visible: [Resource] counts and
// traces every operation, [Collector] exports metrics to Prometheus, and
// [Findings] collects memory bugs.
//
// # Spans
//
// All spans are of kind internal and of the scope [ScopeName]. Their names
// carry no identifiers. An operation whose parent is unsampled makes no span
// and allocates nothing.
//
//	span            parent              when
//	gpumem.alloc    the caller's span   each allocation
//	gpumem.dealloc  the caller's span   each deallocation
//	gpumem.launch   the caller's span   each launch, from prepare to finish or abort
//	gpumem.prepare  gpumem.launch       each block of a launch, or one that failed for all
//	gpumem.finish   gpumem.launch       each block of a finished launch
//	gpumem.finding  gpumem.launch       each finding, under its first suspects: see below
//
// Above [MaxUseSpans] blocks in one launch there is one prepare and one
// finish span that list all generations. The launch function gets a context
// that carries the launch span, so its own spans nest there. The finish spans
// follow the launch, whatever context the finish is called with.
//
// # Attributes
//
// Numbers are int64 and sizes are bytes. A, D, L, P and F are the spans
// above; lower case means "not on failure".
//
//	attribute                   type      on         meaning
//	cuda.device.index           int       A D L P F  the device's ordinal
//	gpumem.stream.id            int       A D L P F  the allocation stream of A and D, the launch's otherwise
//	gpumem.generation           int       a D P F    the block; on a failed P the block the error names, if any
//	gpumem.generations          int[]     P F        the blocks, instead of generation, above MaxUseSpans; a failed P's
//	gpumem.tag                  string    A d p F    the block's tag; not above MaxUseSpans
//	gpumem.block.requested      int       A d p F    bytes that the caller asked for; a sum above MaxUseSpans
//	gpumem.block.bytes          int       A d p F    bytes as the layer below says; a sum above MaxUseSpans
//	gpumem.block.state          string    a d p F    live, retired, quarantined or freed; not above MaxUseSpans
//	gpumem.access               string    p F        read, write or read_write; combined above MaxUseSpans
//	gpumem.waits.queued         int       l p        waits queued for the block, or for the launch
//	gpumem.waits.elided         int       l p        dependencies on other streams that needed no wait
//	gpumem.launch.name          string    L P F      the launch's name, if it has one
//	gpumem.launch.id            int       l          the launch's number, as in findings
//	gpumem.launch.uses          int       L P F      blocks of the launch; on P and F only above MaxUseSpans
//	gpumem.launch.cross_stream  bool      l          a block was last written on another stream
//	gpumem.launch.outcome       string    L          finished, aborted or refused
//	error.type                  string    failures   see [ErrorType]
//
// A guard hides its red zones from its caller, so gpumem.block.bytes of A and
// D is without them; the uses of a launch come from the backend, so that of P
// and F is with them.
//
// # Findings
//
// A finding comes when the launch that is suspected has ended, so it is a span
// gpumem.finding of no duration under the span of the suspect: one for each of
// the first [MaxFindingSpans] suspects if it was traced, and where there is no
// suspect one under the victim's newest traced use. Where a call returns the
// error of a finding, that is an event gpumem.finding of the call's own span.
// Both have gpumem.finding.kind, .source and .suspects (how many there are),
// the victim's cuda.device.index, gpumem.generation, gpumem.tag and
// gpumem.block.requested if it is known, gpumem.finding.offset, .bytes,
// .expected and .seen if bytes were compared, and error.type if there is a
// typed error. The span has gpumem.launch.id, gpumem.launch.name and
// gpumem.stream.id of the suspect, the event gpumem.finding.text.
//
// # Status and links
//
// A failure sets the status to Error with the error's text, and error.type;
// a success leaves it unset. A wait across streams is a link from the prepare
// span to the finish or alloc span of the work waited for, with that work's
// stream as gpumem.stream.id; work that was not sampled has no link. The SDK
// keeps 128 links of a span by default.
//
// # Durations
//
// How long callers waited is a histogram with classic and with native buckets,
// [MetricOperationDuration]. It begins when the outermost layer is called and
// ends when that returns: with the guard, the budget and what they do to cure a
// refusal, and whatever the result, so it counts as many calls as
// [MetricOperations]. A sampled span of the call itself (gpumem.alloc,
// gpumem.dealloc; gpumem.launch for its prepare and end) becomes the exemplar of
// its bucket, with the labels trace_id and span_id.
//
// Native buckets travel in protobuf only, exemplars in that and in OpenMetrics;
// the handler negotiates both if it is made with
// promhttp.HandlerOpts{EnableOpenMetrics: true}. The server must ask for them:
// scrape_native_histograms and --enable-feature=exemplar-storage.
//
// # Cost
//
// Counting and timing a call is two atomic adds and two readings of the
// monotonic clock. With an unsampled parent tracing adds one look at the context. An operation without a parent, whose
// root span the sampler declines, costs what the SDK needs to ask it (two
// allocations); [Config].NoRoots avoids that. Attributes are built only for
// spans that record, so samplers decide by name and parent.
//
// The package needs OpenTelemetry's API, not its SDK; the subpackages
// spanfile and spanpipe, which plug into the SDK, do.
package telemetry
