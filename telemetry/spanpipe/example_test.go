package spanpipe_test

import (
	"context"
	"fmt"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fencepost-gpu/fencepost/telemetry/spanpipe"
)

func ExampleNew() {
	pipe := spanpipe.New(tracetest.NewInMemoryExporter(), spanpipe.Config{})
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(pipe))
	_, span := provider.Tracer("example").Start(context.Background(), "request")
	span.End()
	if err := provider.Shutdown(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%+v\n", pipe.Counts())
	// Output: {Started:1 Ended:1 Exported:1 Failed:0 Dropped:0}
}
