//go:build !race

package logging_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"maps"
	"slices"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
)

// TestLoggingAllocatesNothingOnTheCallersGoroutine covers every sink. The
// asynchronous ones never write here: the queue is large and the delay long.
func TestLoggingAllocatesNothingOnTheCallersGoroutine(t *testing.T) {
	queue := logging.Queue{Size: 1 << 14, Delay: 1 << 40}
	sinks := map[string]logging.Sink{
		"ring": logging.NewRing(0),
		"json": logging.NewJSONSink(io.Discard, queue),
		"csv":  logging.NewCSVSink(io.Discard, queue),
		"slog": logging.NewSlogSink(slog.New(slog.NewTextHandler(new(bytes.Buffer), nil)), queue),
	}
	sets := map[string][]logging.Sink{"all": slices.Collect(maps.Values(sinks))}
	for name, sink := range sinks {
		sets[name] = []logging.Sink{sink}
	}
	for name, set := range sets {
		r := layered(t, logging.Uses, set...)
		uses := []core.Use{{Block: newNoop().block.ID, Access: core.Read}}
		n := testing.AllocsPerRun(500, func() {
			pair(t, r)
			launch(t, r, uses)
		})
		if n != 0 {
			t.Errorf("%s: %v allocations for a pair and a launch", name, n)
		}
	}
	for name, sink := range sinks {
		if err := sink.Close(context.Background()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := sink.Dropped(); n != 0 {
			t.Errorf("%s dropped %d", name, n)
		}
	}
}
