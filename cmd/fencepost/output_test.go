package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
	"github.com/fencepost-gpu/fencepost/telemetry/history"
)

// aLog is a short log.
var aLog = line("allocate", `,"ptr":"0x1000","generation":1,"tag":"rows"`) + line("deallocate", `,"ptr":"0x1000","generation":1,"tag":"rows"`)

func write(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	must.Do(t, os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode))
}

func mustHold(t *testing.T, what, path, want string) {
	t.Helper()
	if text, err := os.ReadFile(path); err != nil || string(text) != want {
		t.Errorf("%s: %s holds %q, %v; want %q", what, filepath.Base(path), text, err, want)
	}
}

// mustHave demands that a folder holds files of these names and no others.
func mustHave(t *testing.T, what, dir string, want ...string) {
	t.Helper()
	entries := must.Get(os.ReadDir(dir))(t)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("%s: the folder holds %q, want %q", what, got, want)
	}
}

// However the log is named, as input or as output, it is not overwritten by its
// own conversion.
func TestALogIsNeverOverwrittenByItsConversion(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, at("log"), aLog, 0o600)
	must.Do(t, os.Symlink("log", at("symbolic")), os.Link(at("log"), at("hard")))
	file := must.Get(os.Open(at("log")))(t)
	defer file.Close()
	open := fmt.Sprintf("/dev/fd/%d", file.Fd())
	for _, names := range [][2]string{{at("log"), at("log")}, {at("log"), at("symbolic")}, {at("symbolic"), at("log")}, {at("log"), at("hard")}, {at("hard"), at("symbolic")}, {open, at("log")}} {
		for _, format := range []string{"jsonl", "perfetto", "pytorch"} {
			what := fmt.Sprintf("%s to %s as %s", names[0], names[1], format)
			if text, code := captured(t, "history", names[0], "-o", names[1], "--format", format); code != exitBadInput || !strings.Contains(text, "the output is the input too") {
				t.Errorf("%s: exit code %d: %s", what, code, text)
			}
			mustHold(t, what, at("log"), aLog)
			mustHave(t, what, dir, "log", "symbolic", "hard")
		}
	}
	appending := must.Get(os.OpenFile(at("log"), os.O_WRONLY|os.O_APPEND, 0))(t)
	defer appending.Close()
	stdout := os.Stdout
	os.Stdout = appending
	code := run([]string{"history", at("log"), "--format=jsonl"})
	os.Stdout = stdout
	mustHold(t, "standard output", at("log"), aLog)
	if code != exitBadInput {
		t.Errorf("standard output: exit code %d", code)
	}
}

func TestALogIsReadOnceSoItMayBeAPipe(t *testing.T) {
	for _, format := range []string{"jsonl", "perfetto", "pytorch"} {
		file := filepath.Join(t.TempDir(), "log")
		write(t, file, aLog, 0o600)
		want, _ := captured(t, "history", file, "--format", format)
		read, write, err := os.Pipe()
		must.Do(t, err)
		go func() {
			_, _ = io.WriteString(write, aLog)
			_ = write.Close()
		}()
		got, code := captured(t, "history", fmt.Sprintf("/dev/fd/%d", read.Fd()), "--format", format)
		if code != exitClean || got != want || got == "" || format == "jsonl" && got != aLog {
			t.Errorf("%s: exit code %d\n%q, want\n%q", format, code, got, want)
		}
		_ = read.Close()
	}
}

// What cannot be converted or written leaves what was there, and what the
// command did not make is not removed.
func TestAnOutputThatFailsLeavesWhatWasThere(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, at("log"), aLog, 0o600)
	write(t, at("bad"), aLog+"{}\n", 0o600)
	write(t, at("far"), aLog+line("allocate", `,"generation":3,"ptr":"0x7fffffffffffffff"`), 0o600)
	write(t, at("old"), "old", 0o640)
	must.Do(t, os.Symlink("/dev/full", at("full")))
	all := []string{"log", "bad", "far", "old", "full"}
	untouched := func(what string) {
		mustHold(t, what, at("old"), "old")
		mustHave(t, what, dir, all...)
		if info, err := os.Lstat("/dev/full"); err != nil || info.Mode().IsRegular() {
			t.Fatalf("%s: /dev/full is %v, %v", what, info, err)
		}
	}
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"history", at("bad"), "-o", at("old")}, exitBadInput},
		{[]string{"history", at("far"), "-o", at("old")}, exitBadInput},
		{[]string{"history", at("none"), "-o", at("old")}, exitBadInput},
		{[]string{"history", at("log"), "--format=svg", "-o", at("old")}, exitBadInput},
		{[]string{"history", at("log"), "-o", at("full")}, exitProblem},
		{[]string{"history", at("log"), "--format=jsonl", "-o", at("full")}, exitProblem},
		{[]string{"history", at("log"), "-o", dir}, exitProblem},
		{[]string{"demo", "--listen=", "--for=100ms", "--device=cuda", "--spans", at("old")}, exitBadInput},
		{[]string{"demo", "--listen=nowhere", "--for=100ms", "--spans", at("old")}, exitBadInput},
	} {
		what := strings.Join(c.args, " ")
		t.Setenv("FENCEPOST_LIBCUDA", "no/libcuda.so.1")
		if text, code := captured(t, c.args...); code != c.code {
			t.Errorf("%s: exit code %d, want %d:\n%s", what, code, c.code, text)
		}
		untouched(what)
	}
	traced := counted(t, "gpumem_spans_ended_total")
	if text, code := demoUntil(t, traced, "--sample=1", "--spans", at("full")); code != exitProblem {
		t.Errorf("a demo whose spans go nowhere: exit code %d:\n%s", code, text)
	}
	untouched("a demo")
	for what, run := range map[string]func() (string, int){
		"history": func() (string, int) { return captured(t, "history", at("log"), "-o", at("old")) },
		"demo":    func() (string, int) { return demoUntil(t, traced, "--sample=0.1", "--spans", at("old")) },
	} {
		if text, code := run(); code != exitClean {
			t.Errorf("%s: exit code %d:\n%s", what, code, text)
		}
		if info, err := os.Stat(at("old")); err != nil || info.Size() < 100 || info.Mode().Perm() != 0o640 {
			t.Errorf("%s: the file is %v, %v", what, info, err)
		}
		mustHave(t, "written", dir, all...)
		write(t, at("old"), "old", 0o640)
	}
}

// Who interrupts a conversion gets nothing, and keeps what was there.
func TestAConversionThatIsStoppedLeavesWhatWasThere(t *testing.T) {
	dir := t.TempDir()
	log, old := filepath.Join(dir, "log"), filepath.Join(dir, "old")
	write(t, log, aLog, 0o600)
	write(t, old, "old", 0o600)
	what := conversion{path: log, output: old, format: history.JSONLines, limits: alloctrace.DefaultLimits}
	ctx, cancel := context.WithCancel(t.Context())
	stopping := history.Source{JSONLines: func(w io.Writer) error {
		_, before := w.Write([]byte("half"))
		cancel()
		_, after := w.Write([]byte("half"))
		return errors.Join(before, after)
	}}
	var problem *problemError
	if err := what.write(ctx, stopping, io.Discard); !errors.Is(err, context.Canceled) || !errors.As(err, &problem) {
		t.Errorf("stopped while it wrote: %v", err)
	}
	if err := convertLog(ctx, newConsole(os.Stdout, os.Stderr), what); !errors.Is(err, context.Canceled) || !errors.As(err, &problem) {
		t.Errorf("stopped before it read: %v", err)
	}
	mustHold(t, "stopped", old, "old")
	mustHave(t, "stopped", dir, "log", "old")
}

// A guard that ends the process flushes the spans first, and nothing else of the
// demo comes after it: they are under the file's name then, and added to if
// the process goes on.
func TestFlushedSpansAreUnderTheNameOfTheirFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "spans")
	write(t, path, "old", 0o600)
	spans, err := openSpans(t.Context(), path, 1)
	must.Do(t, err)
	mustHold(t, "begun", path, "old")
	request := func() {
		_, end := spans.beginRequest(t.Context())
		end()
	}
	request()
	provider, ok := spans.tracers().(interface {
		ForceFlush(ctx context.Context) error
	})
	if !ok {
		t.Fatal("the runtime cannot flush the spans")
	}
	must.Do(t, provider.ForceFlush(t.Context()))
	mustHave(t, "flushed", dir, "spans")
	if text, err := os.ReadFile(path); err != nil || strings.Count(string(text), "demo.sort_and_join") != 1 {
		t.Errorf("flushed: the file holds %q, %v", text, err)
	}
	request()
	expect.Success(t, spans.close(t.Context()))
	if text, err := os.ReadFile(path); err != nil || strings.Count(string(text), "demo.sort_and_join") != 2 {
		t.Errorf("closed: the file holds %q, %v", text, err)
	}
}

// What cannot be printed is a failure, whatever the command would have said.
func TestAFullStandardOutputIsAProblem(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	write(t, log, aLog, 0o600)
	for _, args := range [][]string{
		{"history", log}, {"history", log, "--format=jsonl"}, {"replay", log}, {"doctor"}, {"doctor", "--json"}, {"incident", "../../telemetry/incident/testdata/incident.json"},
		{"demo", "--listen=", "--for=100ms"}, {"--help"},
	} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		must.Do(t, err)
		stdout := os.Stdout
		os.Stdout = full
		code := run(args)
		os.Stdout = stdout
		if err := full.Close(); err != nil || code != exitProblem {
			t.Errorf("%q: exit code %d, %v", args, code, err)
		}
	}
}

// What a command prints goes through its console, which escapes it, and the
// files that it writes are cmd/fencepost/internal/output's. So nothing here does either itself.
func TestCommandsPrintAndWriteInOnePlaceOnly(t *testing.T) {
	forbidden := func(pkg, name string) bool {
		switch pkg {
		case "fmt":
			return strings.HasPrefix(name, "Fprint") || strings.HasPrefix(name, "Print")
		case "os":
			return slices.Contains([]string{"Create", "OpenFile", "WriteFile", "Rename", "Remove", "RemoveAll", "Stdout", "Stderr"}, name)
		}
		return false
	}
	// The console's own beginning, and the line that is rewritten on a terminal.
	permitted := []string{"main.go: os.Stdout", "main.go: os.Stderr", "progress.go: fmt.Fprintf"}
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 10 {
		t.Fatalf("%q, %v", files, err)
	}
	var found []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		must.Do(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if pkg, ok := s.X.(*ast.Ident); ok && forbidden(pkg.Name, s.Sel.Name) {
					found = append(found, fmt.Sprintf("%s: %s.%s", name, pkg.Name, s.Sel.Name))
				}
			}
			return true
		})
	}
	if slices.Sort(permitted); !slices.Equal(slices.Sorted(slices.Values(found)), permitted) {
		t.Errorf("found %q, want %q", found, permitted)
	}
}
