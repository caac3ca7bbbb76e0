package fencepost_test

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost"
)

// lockedText is text that several goroutines write.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// logOf returns a logger and what it has written.
func logOf() (*slog.Logger, *lockedText) {
	to := &lockedText{}
	return slog.New(slog.NewTextHandler(to, nil)), to
}

func TestAnUnknownVariableIsNamedOnceAtEachOpenWithTheNearestKnownOne(t *testing.T) {
	t.Setenv("FENCEPOST_TYPO", "secret")
	t.Setenv("FENCEPOST_GUARD_TAG", "a")
	logger, text := logOf()
	cfg := fencepost.Config{}
	cfg.Findings.Logger = logger
	open(t, cfg)
	for _, want := range []string{"level=WARN", "FENCEPOST_TYPO is no variable of Fencepost and has no effect; the nearest known name is FENCEPOST_", "known name is FENCEPOST_GUARD_TAGS"} {
		if got := text.String(); strings.Count(got, want) != 1 {
			t.Errorf("%q is %d times in the log:\n%s", want, strings.Count(got, want), got)
		}
	}
	if strings.Contains(text.String(), "secret") {
		t.Errorf("the value is in the log:\n%s", text)
	}
}

func TestWithoutALoggerTheDefaultOneIsToldOfAnUnknownVariable(t *testing.T) {
	t.Setenv("FENCEPOST_DEVCE", "cuda")
	logger, text := logOf()
	before := slog.Default()
	slog.SetDefault(logger)
	t.Cleanup(func() { slog.SetDefault(before) })
	open(t, fencepost.Config{})
	rt, err := fencepost.Device(3)
	succeed(t, "the device of the process", err)
	t.Cleanup(func() { _, _ = rt.Close(t.Context()) })
	if got := text.String(); strings.Count(got, "known name is FENCEPOST_DEVICE") != 2 {
		t.Errorf("Open and Device warn:\n%s", got)
	}
}

func TestTheNearestKnownVariableIsNamed(t *testing.T) {
	for name, want := range map[string]string{
		"FENCEPOST_DEVCE": "FENCEPOST_DEVICE", "FENCEPOST_GUARDPOLICY": "FENCEPOST_GUARD_POLICY", "FENCEPOST_budget": "FENCEPOST_BUDGET",
		"FENCEPOST_INCIDENT": "FENCEPOST_INCIDENTS", "FENCEPOST_LIBCUDA_PATH": "FENCEPOST_LIBCUDA", "FENCEPOST_TRACE_LAYER": "FENCEPOST_TRACE_LAYERS",
	} {
		if got := fencepost.UnknownVariables([]string{name + "=1"}); len(got) != 1 || got[0].Name != name || got[0].Nearest != want {
			t.Errorf("%s: %v, want %s", name, got, want)
		}
	}
	for _, entry := range []string{
		"FENCEPOST_DEVCE=", "FENCEPOST_DEVICE=sim", "FENCEPOST_LIBCUDA=x", "FENCEPOST=1", "FENCES=1", "=C:=1",
		"FENCEPOST_SERVICE_HOST=10.0.0.1", "FENCEPOST_SERVICE_PORT=80", "FENCEPOST_SERVICE_PORT_HTTP=80", "FENCEPOST_DEMO_SERVICE_HOST=10.0.0.1",
		"FENCEPOST_PORT=tcp://10.0.0.1:80", "FENCEPOST_PORT_80_TCP_ADDR=10.0.0.1", "FENCEPOST_DEMO_PORT_9464_TCP=tcp://10.0.0.1:9464",
	} {
		if got := fencepost.UnknownVariables([]string{entry}); len(got) != 0 {
			t.Errorf("%s: %v", entry, got)
		}
	}
}

func TestTheNameOfAnUnknownVariableIsPrintedSafely(t *testing.T) {
	for _, name := range []string{"FENCEPOST_\x1b[31m\xff", "FENCEPOST_" + strings.Repeat("X", 1<<20)} {
		got := fencepost.UnknownVariables([]string{name + "=1"})[0].String()
		if strings.Contains(got, "\x1b") || strings.Contains(got, "\xff") || len(got) > 250 {
			t.Errorf("%d bytes: %.300q", len(got), got)
		}
	}
}

// What the tests and scripts of this module read warns nobody who has it set.
func TestEveryVariableThatThisModuleReadsIsKnown(t *testing.T) {
	files := 0
	err := fs.WalkDir(os.DirFS("."), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && d.Name() == ".git" {
			return err
		}
		isScript := filepath.Dir(path) == "scripts" || path == "Makefile"
		if d.IsDir() || !isScript && !strings.HasSuffix(path, ".go") || strings.HasPrefix(path, "envunknown") || path == "internal/doctor/doctor_test.go" {
			return nil
		}
		files++
		for _, name := range matches(read(t, path), `\b(FENCEPOST_[A-Z][A-Z_]*[A-Z])\b`) {
			if name == "FENCEPOST_POISONED" { // an error's name
				continue
			}
			if unknown := fencepost.UnknownVariables([]string{name + "=1"}); len(unknown) > 0 {
				t.Errorf("%s: %v", path, unknown)
			}
		}
		return nil
	})
	if err != nil || files < 100 {
		t.Errorf("%d files, %v", files, err)
	}
}
