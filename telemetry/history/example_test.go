package history_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/telemetry/history"
)

// The history of a ring, for three kinds of readers.
func ExampleHandler() {
	ring := logging.NewRing(0)
	stack, err := logging.New(coretest.NewFake(0), logging.Config{Level: logging.Uses, Sinks: []logging.Sink{ring}})
	if err != nil {
		fmt.Println(err)
		return
	}
	source := history.Source{Events: ring.Events, JSONLines: ring.WriteJSON, Resources: []core.Resource{stack}}
	mux := http.NewServeMux()
	mux.Handle("/debug/gpumem/history", history.Handler(source))

	if _, err := stack.Allocate(context.Background(), core.Request{Bytes: 4096, Tag: "sort.keys"}); err != nil {
		fmt.Println(err)
		return
	}
	var trace strings.Builder
	if err := source.Write(&trace, history.Perfetto); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(strings.Contains(trace.String(), `"name":"allocate"`))
	// Output: true
}
