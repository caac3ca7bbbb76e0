package history_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a stack on the simulated device that logs launches, too.
func open(t testing.TB, cfg fencepost.Config) (*fencepost.Runtime, history.Source) {
	t.Helper()
	cfg.Device, cfg.LogLevel = fencepost.Sim, logging.Uses
	rt := must.Get(fencepost.Open(context.Background(), cfg))(t)
	t.Cleanup(func() {
		if _, err := rt.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return rt, history.Source{Events: rt.History().Events, JSONLines: rt.History().WriteJSON,
		Resources: []core.Resource{rt.Core().Resource()}, Findings: rt.Findings().Recent}
}

func allocate(t testing.TB, rt *fencepost.Runtime, bytes uint64, stream core.StreamID, tag core.Tag) core.Block {
	t.Helper()
	return must.Get(rt.Allocate(context.Background(), core.Request{Bytes: bytes, Stream: stream, Tag: tag}))(t)
}

func free(t testing.TB, rt *fencepost.Runtime, blocks ...core.Block) {
	t.Helper()
	for _, b := range blocks {
		must.Get(rt.Deallocate(context.Background(), b.ID))(t)
	}
}

func launch(t testing.TB, rt *fencepost.Runtime, name string, stream core.StreamID, access core.Access, blocks ...core.Block) {
	t.Helper()
	var uses []core.Use
	for _, b := range blocks {
		uses = append(uses, core.Use{Block: b.ID, Access: access})
	}
	must.Do(t, rt.LaunchNamed(context.Background(), name, stream, uses, func(context.Context) error { return nil }))
}

func streams(t testing.TB, rt *fencepost.Runtime, n int) (ids []core.StreamID) {
	t.Helper()
	for range n {
		l := must.Get(rt.Streams().Acquire(context.Background(), "test"))(t)
		t.Cleanup(func() { _ = l.Release() })
		ids = append(ids, l.ID())
	}
	return ids
}

func export(t testing.TB, s history.Source, f history.Format) []byte {
	t.Helper()
	var file bytes.Buffer
	must.Do(t, s.Write(&file, f))
	return file.Bytes()
}

// snapshotReport is what testdata/check_snapshot.py says.
type snapshotReport struct {
	Actions           []map[string]int
	Segments          int
	Allocated, Active uint64
	Frames            int
	Categories        []string
	Broken            []string
}

// checkSnapshot has Python read a snapshot and check its rules.
func checkSnapshot(t *testing.T, snapshot []byte) snapshotReport {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here")
	}
	file := filepath.Join(t.TempDir(), "snapshot.pickle")
	must.Do(t, os.WriteFile(file, snapshot, 0o600))
	out, err := exec.CommandContext(t.Context(), python, "testdata/check_snapshot.py", file).Output()
	var report snapshotReport
	if jsonErr := json.Unmarshal(out, &report); err != nil || jsonErr != nil {
		t.Fatalf("%v, %v: %s", err, jsonErr, out)
	}
	return report
}

// hunting is a configuration in which every block is guarded and keeps stacks.
func hunting() fencepost.Config { return fencepost.Config{Guard: "hunt"} }

// without leaves out the names that begin with a prefix.
func without(names []string, prefix string) []string {
	return slices.DeleteFunc(names, func(s string) bool { return strings.HasPrefix(s, prefix) })
}
