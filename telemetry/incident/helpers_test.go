package incident_test

import (
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/names"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
	"github.com/fencepost-gpu/fencepost/telemetry/internal/rotated"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func writer(t *testing.T, cfg incident.Config) *incident.Writer {
	t.Helper()
	w := must.Get(incident.NewWriter(cfg))(t)
	t.Cleanup(func() { _ = w.Close(context.Background()) }) // for tests that end early
	return w
}

// named is a finding of a sort of its own.
func named(tag core.Tag) core.Finding {
	return core.Finding{Kind: names.FindingOutOfBoundsWrite, Source: "test", Text: "bytes were overwritten", Time: time.Date(2026, 11, 22, 3, 45, 0, 123456789, time.UTC),
		Victim: core.Block{ID: core.BlockID{Ptr: 0x1000, Generation: 7}, Tag: tag, Requested: 10, Bytes: 10, State: core.Live}, BadBytes: 1}
}

// list are the names in a folder.
func list(t *testing.T, dir string) []string {
	t.Helper()
	entries := must.Get(os.ReadDir(dir))(t)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// readAll reads every incident of a folder, oldest first.
func readAll(t *testing.T, dir string) []*incident.Incident {
	t.Helper()
	var all []*incident.Incident
	for _, name := range list(t, dir) {
		in := must.Get(incident.ReadFile(filepath.Join(dir, name)))(t)
		all = append(all, in)
	}
	return all
}

// isDraft reports whether a file is there that was never whole.
func isDraft(name string) bool { return strings.HasPrefix(name, ".") }

// balanced demands that each finding is in one of the counters.
func balanced(t *testing.T, s incident.Stats) {
	t.Helper()
	if s.Reported != s.Written+s.Omitted+s.Dropped+s.Failed {
		t.Errorf("the sums differ: %+v", s)
	}
}

var errFault = errors.New("no space left on the device")

// faulty is a disk whose k-th call fails, or whose writes wait for a gate.
type faulty struct {
	rotated.RealDisk
	mu     sync.Mutex
	calls  int
	fail   func(call int, op string) bool
	gate   chan struct{}
	writes chan struct{}
	stuck  string // cannot be removed
}

func (f *faulty) step(op string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	call := f.calls
	f.calls++
	if f.fail != nil && f.fail(call, op) {
		return errFault
	}
	return nil
}

func (f *faulty) Write(path string, text []byte) error {
	if f.gate != nil {
		select {
		case f.writes <- struct{}{}:
		default:
		}
		<-f.gate
	}
	if err := f.step("Write"); err != nil {
		return err
	}
	return f.RealDisk.Write(path, text)
}

func (f *faulty) Remove(path string) error {
	if err := f.step("Remove"); err != nil {
		return err
	}
	if path == f.stuck {
		return errFault
	}
	return f.RealDisk.Remove(path)
}

// unsynced is a disk for many files.
type unsynced struct{ rotated.RealDisk }

func (unsynced) Write(path string, text []byte) error { return os.WriteFile(path, text, 0o600) }

// known is an Around that knows everything at once.
func known(around func(core.Finding) incident.Surroundings) func(context.Context, core.Finding) iter.Seq[incident.Surroundings] {
	return func(_ context.Context, f core.Finding) iter.Seq[incident.Surroundings] {
		return func(yield func(incident.Surroundings) bool) { yield(around(f)) }
	}
}

// deliver writes f first, and waits for its file.
func deliver(ctx context.Context, w *incident.Writer, f core.Finding) (string, error) {
	_, wait := w.Urgent(f)
	return wait(ctx)
}
