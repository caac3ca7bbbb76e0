package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/internal/testkit/fakecuda"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// TestMain lets scripts run this binary as the command "fencepost".
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"fencepost": main})
}

// TestTheCommandKeepsItsWord runs the scripts of testdata/script.
func TestTheCommandKeepsItsWord(t *testing.T) {
	traces := must.Get(filepath.Abs("../../traces"))(t)
	incidents := must.Get(filepath.Abs("../../telemetry/incident/testdata"))(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("TRACES", traces)
			e.Setenv("INCIDENTS", incidents)
			e.Setenv(libcuda.PathVariable, "no/libcuda.so.1") // the same on a machine with a GPU
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "demo": demoScript, "report": report, "cut": cut, "spans": spans, "fakecuda": fakeCUDA, "reported": reported,
		},
		RequireExplicitExec: true, RequireUniqueNames: true,
	})
}

// exits runs a command and demands its exit code: exits CODE COMMAND ARGS...
func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	if code := exitCode(ts, args[1], args[2:]...); code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}

func exitCode(ts *testscript.TestScript, command string, args ...string) int {
	err := ts.Exec(command, args...)
	if failure, ok := errors.AsType[*exec.ExitError](err); ok {
		return failure.ExitCode()
	}
	ts.Check(err)
	return 0
}

// demoScript runs the demo, for longer and longer until its report shows enough:
// on a busy machine a short run gets to little, of which samples may have nothing.
// It demands an exit code: demo CODE PATH>N... -- FLAGS...
func demoScript(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	end := slices.Index(args, "--")
	enough, flags := args[1:end], args[end+1:]
	for long := time.Second / 4; ; long *= 2 {
		code := exitCode(ts, "fencepost", append([]string{"demo", "--json", "--listen=", "--for", long.String()}, flags...)...)
		lacks := slices.ContainsFunc(enough, func(condition string) bool {
			path, limit, _ := strings.Cut(condition, ">")
			value, err := reportedValue(ts, path)
			ts.Check(err)
			return !exceeds(ts, value, limit)
		})
		if lacks && long < time.Minute {
			continue
		}
		if code != want {
			ts.Fatalf("exit code %d, want %d", code, want)
		}
		return
	}
}

// report looks into the JSON object that is the last line of standard output:
// report PATH demands that the path is there, report PATH VALUE that it has
// the value, report PATH > N that it is a larger number.
func report(ts *testscript.TestScript, neg bool, args []string) {
	value, err := reportedValue(ts, args[0])
	ok := err == nil
	switch {
	case len(args) == 2:
		ok = ok && fmt.Sprint(value) == args[1]
	case len(args) == 3 && args[1] == ">":
		ok = ok && exceeds(ts, value, args[2])
	}
	if ok == neg {
		ts.Fatalf("report %s is %v (%v)", strings.Join(args, " "), value, err)
	}
}

// reportedValue is what stands in the report under a path.
func reportedValue(ts *testscript.TestScript, path string) (any, error) {
	lines := strings.Split(strings.TrimSpace(ts.ReadFile("stdout")), "\n")
	return lookUp(lines[len(lines)-1], path)
}

// exceeds reports whether a value is a number above a limit.
func exceeds(ts *testscript.TestScript, value any, limit string) bool {
	least, err := strconv.ParseFloat(limit, 64)
	ts.Check(err)
	n, err := strconv.ParseFloat(fmt.Sprint(value), 64)
	return err == nil && n > least
}

// reported puts the first incident file that the report names into a variable:
// reported NAME.
func reported(ts *testscript.TestScript, _ bool, args []string) {
	value, err := reportedValue(ts, "incidents.0")
	ts.Check(err)
	ts.Setenv(args[0], fmt.Sprint(value))
}

// lookUp follows a path of keys and indexes, such as "left_live.0.bytes".
func lookUp(line, path string) (any, error) {
	decoder := json.NewDecoder(strings.NewReader(line))
	decoder.UseNumber() // whole numbers stay whole
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("the last line is no JSON: %w", err)
	}
	for key := range strings.SplitSeq(path, ".") {
		var there bool
		switch v := value.(type) {
		case map[string]any:
			value, there = v[key]
		case []any:
			i, err := strconv.Atoi(key)
			if there = err == nil && i < len(v); there {
				value = v[i]
			}
		}
		if !there {
			return nil, fmt.Errorf("no %q in %v", key, value)
		}
	}
	return value, nil
}

// cut copies the first bytes of a file: cut FROM TO BYTES.
func cut(ts *testscript.TestScript, _ bool, args []string) {
	bytes, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	n, err := strconv.Atoi(args[2])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), bytes[:n], 0o600))
}

// fakeCUDA puts a fake driver library in the place of the machine's, with
// settings of its own: fakecuda KEY=NUMBER...
func fakeCUDA(ts *testscript.TestScript, _ bool, args []string) {
	settings := map[string]int{}
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		n, err := strconv.Atoi(value)
		ts.Check(err)
		settings[key] = n
	}
	dir := ts.MkAbs(strings.Join(append([]string{"fake"}, args...), "-"))
	ts.Check(os.MkdirAll(dir, 0o755))
	library, err := fakecuda.Build(dir, settings)
	ts.Check(err)
	ts.Setenv(libcuda.PathVariable, library)
}

// spans demands that every line of a file is a JSON object and that the operations
// or names given are among the spans': spans FILE NAME...
func spans(ts *testscript.TestScript, _ bool, args []string) {
	seen := map[string]int{}
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		var span struct {
			Name       string         `json:"name"`
			Attributes map[string]any `json:"attributes"`
		}
		if err := json.Unmarshal([]byte(line), &span); err != nil || span.Name == "" {
			ts.Fatalf("not a span: %v\n%s", err, line)
		}
		seen[span.Name]++
		if operation, ok := span.Attributes["gpumem.operation"].(string); ok {
			seen[operation]++
		}
	}
	for _, name := range args[1:] {
		if seen[name] == 0 {
			ts.Fatalf("no span %s among %v", name, seen)
		}
	}
}
