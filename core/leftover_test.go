package core_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

func TestALeftoverIsReadable(t *testing.T) {
	mustBe(t, "of a clean end", fmt.Sprint(core.Leftover{}), "nothing")

	rt, _, _ := fakeRuntime(t)
	_, err := rt.Allocate(t.Context(), core.Request{Bytes: 100, Tag: "index"})
	succeed(t, "allocate", err)
	left, err := rt.Close(t.Context())
	succeed(t, "close", err)
	left.Leaks[0].AllocStack, left.Leaks[0].Allocated = core.CaptureStack(0), time.Now().Add(-time.Hour)
	text := fmt.Sprint(left)
	lines := strings.Split(text, "\n")
	if len(lines) != 2 || lines[0] != "100 bytes never given back, 0 uses never ended" ||
		!strings.HasPrefix(lines[1], `  100 bytes tagged "index", allocated `) || !strings.Contains(lines[1], "core_test.TestALeftoverIsReadable") {
		t.Errorf("it is printed as\n%s", text)
	}
	for name, handler := range map[string]func(*bytes.Buffer) slog.Handler{
		"text": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
		"JSON": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
	} {
		var log bytes.Buffer
		slog.New(handler(&log)).Info("closed", "left", left)
		if got := log.String(); !strings.Contains(got, `100 bytes never given back, 0 uses never ended\n  100 bytes tagged`) || strings.Contains(got, "OpenIntents") {
			t.Errorf("logged as %s: %s", name, got)
		}
	}
}

func TestALeftoverOfManyLeaksIsBounded(t *testing.T) {
	left := core.Leftover{Leaks: make([]core.BlockInfo, 1000), LeakedBytes: 5000}
	lines := strings.Split(left.String(), "\n")
	if len(lines) != 22 || lines[21] != "  and 980 more blocks" {
		t.Errorf("%d lines, the last is %q", len(lines), lines[len(lines)-1])
	}
}
