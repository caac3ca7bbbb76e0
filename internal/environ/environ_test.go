package environ_test

import (
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/environ"
)

func TestTheNearestKnownVariableIsNamed(t *testing.T) {
	for name, want := range map[string]string{
		"FENCEPOST_DEVCE": "FENCEPOST_DEVICE", "FENCEPOST_GUARDPOLICY": "FENCEPOST_GUARD_POLICY", "FENCEPOST_budget": "FENCEPOST_BUDGET",
		"FENCEPOST_INCIDENT": "FENCEPOST_INCIDENTS", "FENCEPOST_LIBCUDA_PATH": "FENCEPOST_LIBCUDA", "FENCEPOST_TRACE_LAYER": "FENCEPOST_TRACE_LAYERS",
	} {
		if got := environ.Unknown([]string{name + "=1"}); len(got) != 1 || got[0].Name != name || got[0].Nearest != want {
			t.Errorf("%s: %v, want %s", name, got, want)
		}
	}
	for _, entry := range []string{
		"FENCEPOST_DEVCE=", "FENCEPOST_DEVICE=sim", "FENCEPOST_LIBCUDA=x", "FENCEPOST=1", "FENCES=1", "=C:=1",
		"FENCEPOST_SERVICE_HOST=10.0.0.1", "FENCEPOST_SERVICE_PORT=80", "FENCEPOST_SERVICE_PORT_HTTP=80", "FENCEPOST_DEMO_SERVICE_HOST=10.0.0.1",
		"FENCEPOST_PORT=tcp://10.0.0.1:80", "FENCEPOST_PORT_80_TCP_ADDR=10.0.0.1", "FENCEPOST_DEMO_PORT_9464_TCP=tcp://10.0.0.1:9464",
	} {
		if got := environ.Unknown([]string{entry}); len(got) != 0 {
			t.Errorf("%s: %v", entry, got)
		}
	}
}

func TestTheNameOfAnUnknownVariableIsPrintedSafely(t *testing.T) {
	for _, name := range []string{"FENCEPOST_\x1b[31m\xff", "FENCEPOST_" + strings.Repeat("X", 1<<20)} {
		got := environ.Unknown([]string{name + "=1"})[0].String()
		if strings.Contains(got, "\x1b") || strings.Contains(got, "\xff") || len(got) > 250 {
			t.Errorf("%d bytes: %.300q", len(got), got)
		}
	}
}
