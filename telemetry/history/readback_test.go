package history_test

import (
	"bytes"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
	"github.com/fencepost-gpu/fencepost/telemetry/history"
)

// A dump that is read back says what the ring said: its exports are the same
// to the byte, and replay finds its allocations.
func TestADumpReadBackIsExportedLikeTheRing(t *testing.T) {
	rt, source := open(t, fencepost.Config{Guard: "off"})
	s := streams(t, rt, 3)
	for i := range 100 {
		b := allocate(t, rt, uint64(1+i)*100, s[i%3], "rows")
		launch(t, rt, "fill", s[i%3], core.Write, b)
		launch(t, rt, "read", s[(i+1)%3], core.Read, b)
		free(t, rt, b)
	}
	if err := rt.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	events := source.Events()
	direct := history.Source{Events: func() []core.Event { return events }}
	dump := export(t, source, history.JSONLines)
	read, err := alloctrace.ReadEvents("dump", bytes.NewReader(dump))
	if err != nil {
		t.Fatal(err)
	}
	back := history.Source{Events: func() []core.Event { return read }}
	for _, format := range []history.Format{history.Perfetto, history.PyTorch} {
		if a, b := export(t, direct, format), export(t, back, format); !bytes.Equal(a, b) {
			t.Errorf("%s: %d bytes of the ring, %d of the dump, and they differ", format, len(a), len(b))
		}
	}
	trace, err := alloctrace.Read("dump", bytes.NewReader(dump))
	if err != nil {
		t.Fatal(err)
	}
	allocations := 0
	for _, row := range trace.Rows {
		if row.Action == alloctrace.Allocate {
			allocations++
		}
	}
	if allocations != 100 {
		t.Errorf("replay finds %d allocations, want 100", allocations)
	}
}
