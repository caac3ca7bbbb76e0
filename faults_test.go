package fencepost_test

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// A dump that the driver of an H200 once wrote comes through the pipe: the runtime is lost from its first byte on, says which kernel
// it was, and leaves nothing behind.
func TestAFaultIsNamedByItsDump(t *testing.T) {
	fakeGPU(t, nil)
	t.Setenv("TMPDIR", t.TempDir())
	found := make(chan core.Finding, 8)
	rt, err := fencepost.Open(t.Context(), fencepost.Config{Device: fencepost.CUDA, Guard: "ledger", Faults: fencepost.FaultsNamed,
		OnFinding: func(f core.Finding) { found <- f }})
	must.Do(t, err)
	if got := rt.GuardStatus().Faults; got != "armed" {
		t.Fatalf("faults are %s", got)
	}
	pipes, err := filepath.Glob(filepath.Join(os.TempDir(), "fencepost-faults-*", "*"))
	must.Do(t, err)
	if len(pipes) != 1 {
		t.Fatalf("pipes: %q", pipes)
	}
	recorded, err := os.Open("internal/gpucore/testdata/read-last.gz")
	must.Do(t, err)
	defer func() { must.Do(t, recorded.Close()) }()
	dump, err := gzip.NewReader(recorded)
	must.Do(t, err)
	pipe, err := os.OpenFile(pipes[0], os.O_WRONLY, 0)
	must.Do(t, err)
	_, err = io.CopyN(pipe, dump, 1)
	must.Do(t, err)
	_, err = io.CopyN(pipe, dump, 100)
	must.Do(t, err)
	for rt.Health().State != names.HealthPoisoned { // though nothing calls
		time.Sleep(time.Millisecond)
	}
	if err := rt.Streams().Synchronize(t.Context(), core.DefaultStream); !errors.Is(err, core.ErrSticky) {
		t.Errorf("while a dump is under way a stream is done: %v", err)
	}
	_, err = io.Copy(pipe, dump)
	must.Do(t, errors.Join(err, pipe.Close()))
	f := <-found
	if f.Kind != names.FindingIllegalAccess || !strings.Contains(f.Text, `kernel "k_read"`) || !strings.Contains(f.Text, " read 4 bytes from 0x7f2150a03f80 to 0x7f2150e04000") {
		t.Errorf("the finding is %v", f)
	}
	if h := rt.Health(); h.State != names.HealthPoisoned {
		t.Errorf("it is %s", h.State)
	}
	_, err = rt.Close(t.Context())
	if err != nil && !errors.Is(err, core.ErrSticky) {
		t.Error(err)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
		t.Errorf("what is left: %v, %v", left, err)
	}
}

func TestFaultsAreNamedWhereThatIsAskedForAndCanBe(t *testing.T) {
	fakeGPU(t, nil)
	for name, c := range map[string]struct {
		cfg  fencepost.Config
		env  string
		says string
	}{
		"by default":          {fencepost.Config{Guard: "ledger"}, "", "off"},
		"in a hunt":           {fencepost.Config{Guard: "hunt:bisect"}, "", "armed"},
		"in another hunt":     {fencepost.Config{Guard: "hunt"}, "", "armed"},
		"in a hunt, switched": {fencepost.Config{Guard: "hunt", Faults: fencepost.FaultsOff}, "", "off"},
		"taken by others":     {fencepost.Config{Guard: "ledger", Faults: fencepost.FaultsNamed}, "1", "not armed: CUDA_ENABLE_COREDUMP_ON_EXCEPTION"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", c.env)
			c.cfg.Device = fencepost.CUDA
			rt := e2e.Open(t, c.cfg)
			if got := rt.GuardStatus().Faults; !strings.HasPrefix(got, c.says) {
				t.Errorf("faults are %s", got)
			}
		})
	}
	if _, err := fencepost.Open(context.Background(), fencepost.Config{Faults: "all"}); !errors.Is(err, core.ErrInvalidRequest) {
		t.Errorf("a mode that there is not: %v", err)
	}
}
