package fencepost_test

import (
	"errors"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/environ"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

func TestTheEnvironmentOverridesTheConfig(t *testing.T) {
	for name, value := range map[string]string{
		"FENCEPOST_DEVICE": "sim", "FENCEPOST_ORDINAL": "5", "FENCEPOST_SIM_BYTES": "64 MiB", "FENCEPOST_RESOURCE": "direct",
		"FENCEPOST_SIM_UUID": "GPU-00000000-0000-0000-0000-00000000abcd",
		"FENCEPOST_STREAMS":  "3", "FENCEPOST_BUDGET": "32MiB", "FENCEPOST_GUARD": "off", "FENCEPOST_HISTORY": "64", "FENCEPOST_DEVICE_ORDER": "1",
		"FENCEPOST_GUARD_POLICY": "refuse", "FENCEPOST_GUARD_TAGS": "sort.keys, join.table", "FENCEPOST_INCIDENTS": filepath.Join(t.TempDir(), "incidents"),
	} {
		t.Setenv(name, value)
	}
	rt := e2e.Open(t, fencepost.Config{Device: fencepost.CUDA, Ordinal: 1, Streams: 9, Budget: 1, Guard: "hunt"})
	if got, want := rt.String(), "telemetry(debugguard(budget(logging(direct(sim:5)))))"; got != want {
		t.Errorf("the stack is %s, want %s", got, want)
	}
	if _, total, err := rt.Driver().MemInfo(); err != nil || total != 64<<20 {
		t.Errorf("a device of %d bytes, %v", total, err)
	}
	if p, err := rt.Driver().Properties(); err != nil || p.UUID != "GPU-00000000-0000-0000-0000-00000000abcd" {
		t.Errorf("a device %q, %v", p.UUID, err)
	}
	if rt.Streams().Stats().Max != 3 || rt.Stats().Limit != 32<<20 || rt.Guard().Mode().String() != "off" || rt.History().Cap() != 64 {
		t.Errorf("%d leases, limit %d, guard %v, %d records", rt.Streams().Stats().Max, rt.Stats().Limit, rt.Guard().Mode(), rt.History().Cap())
	}
	if s := rt.GuardStatus(); s.Policy != fencepost.PolicyRefuse || !slices.Equal(s.HuntTags, []string{"sort.keys", "join.table"}) || rt.Incidents() == nil {
		t.Errorf("%+v, incidents in %v", s, rt.Incidents())
	}
}

func TestTheEnvironmentSetsThePool(t *testing.T) {
	t.Setenv("FENCEPOST_POOL_LIMIT", "8 MiB")
	t.Setenv("FENCEPOST_POOL_TRIM_AFTER", "50ms")
	cfg := fencepost.Config{Resource: fencepost.Pool, Guard: "off", Pool: cuda.PoolConfig{Limit: 64 << 20, TrimAfter: -1, ReapInterval: time.Millisecond}}
	rt := e2e.OpenDirty(t, cfg)
	if limit := rt.Stats().OwnPool.Limit; limit != 8<<20 {
		t.Errorf("the pool may hold %d bytes", limit)
	}
	expect.ErrorOf(rt.Allocate(t.Context(), core.Request{Bytes: 9 << 20}))(t, core.ErrOutOfMemory, "allocated beyond the limit")
	e2e.Free(t, rt, e2e.Allocate(t, rt, 4<<20, core.DefaultStream, "burst"))
	for deadline := time.Now().Add(time.Minute); rt.Stats().Reserved > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the pool gives nothing back by itself: %+v", rt.Stats().OwnPool)
		}
	}
	t.Setenv("FENCEPOST_RESOURCE", "async") // whose pool they are not of
	if rt := e2e.Open(t, cfg); rt.Stats().OwnPool != (core.OwnPoolStats{}) {
		t.Errorf("the driver's pool has %+v", rt.Stats().OwnPool)
	}
}

func TestTheEnvironmentSaysWhatIsTraced(t *testing.T) {
	t.Setenv("FENCEPOST_TRACE_LEVEL", "launches")
	t.Setenv("FENCEPOST_TRACE_LAYERS", "1")
	rt, recorder := e2e.TracedRuntime(t, fencepost.Config{Guard: "off"})
	must.Do(t, e2e.Life(t.Context(), rt))
	if n := len(e2e.SpansOf(recorder, telemetry.SpanAlloc)); n != 0 || len(e2e.SpansOf(recorder, telemetry.SpanLaunch)) == 0 || len(e2e.SpansOf(recorder, telemetry.SpanLayer)) == 0 {
		t.Errorf("%d allocations among %d spans", n, len(recorder.Ended()))
	}
	t.Setenv("FENCEPOST_TRACE_LEVEL", "off")
	quiet, recorder := e2e.TracedRuntime(t, fencepost.Config{Guard: "off", Ordinal: 1})
	if err := e2e.Life(t.Context(), quiet); err != nil || len(recorder.Ended()) != 0 {
		t.Errorf("%d spans of a stack that is not traced, %v", len(recorder.Ended()), err)
	}
}

func TestAnEmptyVariableCountsAsNotSet(t *testing.T) {
	t.Setenv("FENCEPOST_STREAMS", "")
	if got := e2e.Open(t, fencepost.Config{}).Streams().Stats().Max; got != cuda.DefaultMaxStreams {
		t.Errorf("%d leases, want %d", got, cuda.DefaultMaxStreams)
	}
}

func TestABadVariableIsNamedInTheRefusal(t *testing.T) {
	for _, c := range []struct{ name, value string }{
		{"FENCEPOST_DEVICE", "tpu"},
		{"FENCEPOST_ORDINAL", "one"},
		{"FENCEPOST_ORDINAL", "16"},
		{"FENCEPOST_ORDINAL", "-1"},
		{"FENCEPOST_SIM_BYTES", "lots"},
		{"FENCEPOST_SIM_BYTES", "3MiB"},
		{"FENCEPOST_SIM_BYTES", "99999999TiB"},
		{"FENCEPOST_SIM_UUID", "mine"},
		{"FENCEPOST_RESOURCE", "managed"},
		{"FENCEPOST_POOL_LIMIT", "8GB"},
		{"FENCEPOST_POOL_LIMIT", "-1"},
		{"FENCEPOST_POOL_TRIM_AFTER", "soon"},
		{"FENCEPOST_POOL_TRIM_AFTER", "30"},
		{"FENCEPOST_STREAMS", "many"},
		{"FENCEPOST_STREAMS", "-1"},
		{"FENCEPOST_STREAMS", "9999999999999999999999"},
		{"FENCEPOST_DEVICE_ORDER", "perhaps"},
		{"FENCEPOST_BUDGET", "8GB"},
		{"FENCEPOST_BUDGET", "-1"},
		{"FENCEPOST_BUDGET", "18446744073709551615GiB"},
		{"FENCEPOST_GUARD", "paranoid"},
		{"FENCEPOST_GUARD", "sample:lots"},
		{"FENCEPOST_GUARD_POLICY", "explode"},
		{"FENCEPOST_GUARD_TAGS", "a,,b"},
		{"FENCEPOST_GUARD_TAGS", ","},
		{"FENCEPOST_INCIDENTS", os.DevNull},
		{"FENCEPOST_TRACE_LEVEL", "verbose"},
		{"FENCEPOST_TRACE_LAYERS", "all"},
		{"FENCEPOST_HISTORY", "some"},
		{"FENCEPOST_HISTORY", "-5"},
		{"FENCEPOST_HISTORY", "99999999999"},
	} {
		t.Run(c.name+"="+c.value, func(t *testing.T) {
			t.Setenv(c.name, c.value)
			_, err := fencepost.Open(t.Context(), fencepost.Config{})
			var invalid *core.InvalidRequestError
			if !errors.As(err, &invalid) || invalid.Field != c.name || invalid.Reason == "" {
				t.Errorf("got %v, want an InvalidRequestError that names the variable", err)
			}
		})
	}
}

// The device says how long a page is, so the pool's limit is judged when it is made.
func TestALimitOfLessThanAPageIsNamedAsItWasSet(t *testing.T) {
	open := func() (*core.InvalidRequestError, bool) {
		_, err := fencepost.Open(t.Context(), fencepost.Config{Device: fencepost.Sim, Resource: fencepost.Pool, Pool: cuda.PoolConfig{Limit: 4096}})
		return errors.AsType[*core.InvalidRequestError](err)
	}
	if e, ok := open(); !ok || e.Field != "Pool.Limit" || !strings.Contains(e.Reason, "at least 2097152") {
		t.Errorf("the configuration: %v", e)
	}
	t.Setenv("FENCEPOST_POOL_LIMIT", "4KiB")
	if e, ok := open(); !ok || e.Field != "FENCEPOST_POOL_LIMIT" || !strings.Contains(e.Reason, "at least 2097152") {
		t.Errorf("the variable: %v", e)
	}
}

func TestParseBytesReadsSizes(t *testing.T) {
	for text, want := range map[string]uint64{
		"0": 0, "1073741824": 1 << 30, "4KiB": 4 << 10, " 16 MiB ": 16 << 20, "2GiB": 2 << 30, "1TiB": 1 << 40, "18446744073709551615": math.MaxUint64,
	} {
		if got, err := fencepost.ParseBytes(text); got != want || err != nil {
			t.Errorf("ParseBytes(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "MiB", "1.5GiB", "-1", "0x10", "1MB", "1 MiB KiB", "18446744073709551616", "16777216TiB"} {
		if got, err := fencepost.ParseBytes(text); err == nil || !strings.Contains(err.Error(), "not a size") {
			t.Errorf("ParseBytes(%q) = %d, %v, want a refusal", text, got, err)
		}
	}
}

func FuzzParseBytesNeverWraps(f *testing.F) {
	for _, seed := range []string{"1", "4KiB", "16777215TiB", "18446744073709551615GiB", "KiBKiB"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := fencepost.ParseBytes(text)
		if err != nil {
			return
		}
		if strings.Contains(text, "TiB") && got%(1<<40) != 0 {
			t.Errorf("ParseBytes(%q) = %d is not a whole number of TiB", text, got)
		}
	})
}

func TestAnUnknownVariableIsNamedOnceAtEachOpenWithTheNearestKnownOne(t *testing.T) {
	t.Setenv("FENCEPOST_TYPO", "secret")
	t.Setenv("FENCEPOST_GUARD_TAG", "a")
	logger, text := e2e.LogOf()
	cfg := fencepost.Config{}
	cfg.Findings.Logger = logger
	e2e.Open(t, cfg)
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
	logger, text := e2e.LogOf()
	before := slog.Default()
	slog.SetDefault(logger)
	t.Cleanup(func() { slog.SetDefault(before) })
	e2e.Open(t, fencepost.Config{})
	rt := must.Get(fencepost.Device(3))(t)
	t.Cleanup(func() { _, _ = rt.Close(t.Context()) })
	if got := text.String(); strings.Count(got, "known name is FENCEPOST_DEVICE") != 2 {
		t.Errorf("Open and Device warn:\n%s", got)
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
		if d.IsDir() || !isScript && !strings.HasSuffix(path, ".go") || path == "env_test.go" || path == "internal/environ/environ_test.go" || path == "cmd/fencepost/internal/doctor/doctor_test.go" {
			return nil
		}
		files++
		text := e2e.Read(t, path)
		if !strings.Contains(text, "FENCEPOST_") { // as in most files
			return nil
		}
		for _, name := range e2e.Matches(text, `\b(FENCEPOST_[A-Z][A-Z_]*[A-Z])\b`) {
			if name == "FENCEPOST_POISONED" { // an error's name
				continue
			}
			if unknown := environ.Unknown([]string{name + "=1"}); len(unknown) > 0 {
				t.Errorf("%s: %v", path, unknown)
			}
		}
		return nil
	})
	if err != nil || files < 100 {
		t.Errorf("%d files, %v", files, err)
	}
}
