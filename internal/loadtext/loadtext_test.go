package loadtext_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/internal/loadtext"
)

func TestALibraryThatIsNotThereIsNamedOnce(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "libcuda.so.1")
	_, err := libcuda.LoadPath(missing)
	if got, want := loadtext.Brief(err), "no CUDA driver here: "+missing+" not found"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestALibraryThatIsThereAndCannotBeLoadedIsTold(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "libcuda.so.1")
	if err := os.WriteFile(broken, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := libcuda.LoadPath(broken)
	if got := loadtext.Brief(err); !strings.Contains(got, broken) || strings.Contains(got, "not found") {
		t.Errorf("got %q", got)
	}
}

func TestLaterFailuresKeepTheirTextWithoutTheHelp(t *testing.T) {
	err := &libcuda.LoadError{Stage: libcuda.StageInit, Path: "libcuda.so.1", Text: "cuInit: no device", Help: "look"}
	if got, want := loadtext.Brief(err), "no CUDA driver here: libcuda.so.1: cuInit: no device"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := loadtext.Brief(errors.New("other")); got != "other" {
		t.Errorf("got %q", got)
	}
}
