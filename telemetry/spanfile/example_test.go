package spanfile_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/spanfile"
)

func ExampleNew() {
	var file strings.Builder
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(spanfile.New(&file)))
	observed, err := telemetry.NewResource(coretest.NewFake(0), telemetry.Config{TracerProvider: provider})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = observed.Allocate(context.Background(), core.Request{Bytes: 4096, Tag: "index.build"})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := provider.Shutdown(context.Background()); err != nil { // writes what is queued
		fmt.Println(err)
		return
	}
	var span spanfile.Span
	if err := json.Unmarshal([]byte(file.String()), &span); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(span.Name, span.Attributes["gpumem.block.bytes"], span.Status.Code)
	// Output: gpumem.alloc index.build 4096 Unset
}
