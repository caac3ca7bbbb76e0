package libcuda_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
)

func brief(t *testing.T, err error) string {
	t.Helper()
	e, ok := errors.AsType[*libcuda.LoadError](err)
	if !ok {
		t.Fatalf("got %v", err)
	}
	return e.Brief()
}

func TestALibraryThatIsNotThereIsNamedOnce(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "libcuda.so.1")
	_, err := libcuda.LoadPath(missing)
	if got, want := brief(t, err), "no CUDA driver here: "+missing+" not found"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestALibraryThatIsThereAndCannotBeLoadedIsTold(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "libcuda.so.1")
	must(t, os.WriteFile(broken, []byte("no library"), 0o600))
	_, err := libcuda.LoadPath(broken)
	if got := brief(t, err); !strings.Contains(got, broken) || strings.Contains(got, "not found") {
		t.Errorf("got %q", got)
	}
}

func TestLaterFailuresKeepTheirTextWithoutTheHelp(t *testing.T) {
	err := &libcuda.LoadError{Stage: libcuda.StageInit, Path: "libcuda.so.1", Text: "cuInit: no device", Help: "look"}
	if got, want := brief(t, err), "no CUDA driver here: libcuda.so.1: cuInit: no device"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
