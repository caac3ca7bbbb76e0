// Package telemetry makes a stack of GPU memory visible: [Resource] counts and
// traces every operation, [Probe] traces layers, and [Findings] collects memory
// bugs. Package metrics exports what is counted.
//
// # Spans
//
// All spans are of kind internal and of the scope [ScopeName]. A name is an operation
// and its target, such as "gpumem.launch merge": a launch's name, also for its steps; the
// tag of an allocation, a free or a refusal; the kind of a finding; the direction of a copy;
// what is waited for; a layer; the call that failed. The first 64 launches and tags that are
// sampled are told apart, the rest are other. [AttrSpanOperation] is the operation alone, as
// is the name that samplers see and the OnStart of span processors. An operation whose parent
// is unsampled makes no span and no name, and allocates nothing.
//
//	operation       parent              when
//	gpumem.job      the caller's span   each job, as long as it takes, with its bill
//	gpumem.alloc    the caller's span   each allocation
//	gpumem.dealloc  the caller's span   each deallocation
//	gpumem.launch   the caller's span   each launch, from prepare to finish or abort
//	gpumem.prepare  gpumem.launch       each block of a launch, or one that failed for all
//	gpumem.finish   gpumem.launch       each block of a finished launch
//	gpumem.device   gpumem.launch       each launch, on the device, when that has done it
//	gpumem.copy     gpumem.launch       each copy, while the driver is given it
//	gpumem.wait     the caller's span   each wait of the host until a stream is done
//	gpumem.finding  the suspect's span  each finding
//	gpumem.layer    any of the first 3  each layer passed through, where there is a [Probe]
//
// The caller's span of a job's operations is the job's.
// docs/metrics.md has their attributes, statuses, links and events. The
// launch function gets a context that carries the launch span, so its own spans
// nest there. A finding comes when the launch that is suspected has ended, so it is a
// span of no duration, of the first [MaxFindingSpans] suspects. A call that is refused
// or fails and has no span of its own makes a [SpanRefusal] or a [SpanFailure], also
// where the request is not sampled: there at most [MaxEventSpans] a second, if the
// provider's sampler follows its parent.
//
// # Durations
//
// gpumem_operation_duration_seconds is how long callers waited: from the call of the
// outermost layer to its return, whatever the result. It has classic and native
// buckets; a sampled span of the call, or of its failure, becomes the exemplar of its
// bucket, with the labels trace_id and span_id. Native buckets travel in protobuf only,
// exemplars in that and in OpenMetrics; the handler negotiates both if it is made with
// promhttp.HandlerOpts{EnableOpenMetrics: true}, and the server must ask for them:
// scrape_native_histograms and --enable-feature=exemplar-storage.
//
// # Cost
//
// Counting and timing a call is two atomic adds and two readings of the
// monotonic clock. What is not sampled adds one look at the context and allocates nothing: with
// an unsampled parent, and without a parent if the provider is the SDK's with its own ids and its sampler
// is NeverSample or TraceIDRatioBased, alone or as the root of ParentBased. Then the trace id is
// drawn here, and the sampler is asked about an id that it takes. Another sampler is asked about
// each operation without a parent, which costs what the SDK needs for that (two allocations);
// [Config].NoRoots avoids it. Attributes are built only for
// spans that record, so samplers decide by name, parent and context.
//
// The package needs OpenTelemetry's API, not its SDK; the subpackages
// spanfile and spanpipe, which plug into the SDK, do.
package telemetry
