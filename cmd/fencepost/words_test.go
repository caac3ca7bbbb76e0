package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

const tables = "../../traces/tables.csv.gz"

// apart runs a command and returns what it wrote to standard output and to standard error.
func apart(ctx context.Context, t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var files [2]*os.File
	for i := range files {
		files[i] = must.Get(os.Create(filepath.Join(t.TempDir(), "out")))(t)
		t.Cleanup(func() { _ = files[i].Close() })
	}
	before := [2]*os.File{os.Stdout, os.Stderr}
	os.Stdout, os.Stderr = files[0], files[1]
	code = runUntil(ctx, args)
	os.Stdout, os.Stderr = before[0], before[1]
	out := must.Get(os.ReadFile(files[0].Name()))(t)
	errs := must.Get(os.ReadFile(files[1].Name()))(t)
	return string(out), string(errs), code
}

// A slip of the pen is answered with the command that was meant, on one line.
func TestAMisspelledCommandIsCorrected(t *testing.T) {
	code := 0
	for _, cmd := range rootCommand(newConsole(os.Stdout, os.Stderr), &code).Commands() {
		slip := cmd.Name()[:len(cmd.Name())-1] + "z"
		stdout, stderr, code := apart(t.Context(), t, slip)
		if code != exitBadInput || stdout != "" || strings.Count(stderr, "\n") != 1 || strings.Contains(stderr, `\`) ||
			!strings.Contains(stderr, "did you mean "+cmd.Name()) {
			t.Errorf("%s: exit code %d\n%s%s", slip, code, stdout, stderr)
		}
	}
	if _, stderr, code := apart(t.Context(), t, "xylophone"); code != exitBadInput || strings.Contains(stderr, "mean") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
}

// Who gives too few arguments, or too many, reads which there are.
func TestAWrongNumberOfArgumentsIsAnsweredWithTheRightOnes(t *testing.T) {
	code, refused := 0, 0
	for _, cmd := range rootCommand(newConsole(os.Stdout, os.Stderr), &code).Commands() {
		for _, args := range [][]string{{}, {"a", "b", "c"}} {
			if cmd.Args(cmd, args) == nil {
				continue
			}
			refused++
			_, stderr, code := apart(t.Context(), t, append([]string{cmd.Name()}, args...)...)
			if code != exitBadInput || !strings.Contains(stderr, "fencepost "+cmd.Use) {
				t.Errorf("%s %q: exit code %d\n%s", cmd.Name(), args, code, stderr)
			}
		}
	}
	if refused < 8 {
		t.Errorf("only %d were refused", refused)
	}
}

// A file that is not there is named, in the same words by every command.
func TestAFileThatIsNotThereIsNamed(t *testing.T) {
	for _, command := range []string{"replay", "fit", "why", "history", "incident"} {
		for path, want := range map[string]string{"/no/such/file": "/no/such/file: no such file or directory\n",
			t.TempDir(): "director|folder"} {
			_, stderr, code := apart(t.Context(), t, command, path)
			if code != exitBadInput || !strings.Contains(stderr, path) || !regexp.MustCompile(want).MatchString(stderr) ||
				strings.Contains(stderr, ":0:") {
				t.Errorf("%s %s: exit code %d\n%s", command, path, code, stderr)
			}
		}
	}
}

// Each command with the flag --json prints JSON on standard output and nothing else, so that a
// program can read it.
func TestJSONIsAloneOnStandardOutput(t *testing.T) {
	guard := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"setting":"sample","policy":"report","hunt_tags":[],"numbers":{},"findings":0}`))
	}))
	defer guard.Close()
	arguments := map[string][]string{
		"demo":   {"--device=sim", "--listen=", "--for=100ms"},
		"replay": {"--device=sim", tables, tables},
		"fit":    {tables},
		"doctor": {"--device=sim"},
		"guard":  {"--at=" + guard.URL},
	}
	exit := 0
	for _, cmd := range rootCommand(newConsole(os.Stdout, os.Stderr), &exit).Commands() {
		if cmd.Flags().Lookup("json") == nil {
			continue
		}
		args, ok := arguments[cmd.Name()]
		if !ok {
			t.Errorf("the test has no arguments for %s", cmd.Name())
			continue
		}
		stdout, stderr, _ := apart(t.Context(), t, append([]string{cmd.Name(), "--json"}, args...)...)
		objects := 0
		for decoder := json.NewDecoder(strings.NewReader(stdout)); decoder.More(); objects++ {
			var object map[string]any
			if err := decoder.Decode(&object); err != nil {
				t.Fatalf("%s: %v\n%s", cmd.Name(), err, stdout)
			}
		}
		if want := max(1, strings.Count(strings.Join(args, " "), tables)); objects != want {
			t.Errorf("%s printed %d objects, want %d\n%s%s", cmd.Name(), objects, want, stdout, stderr)
		}
	}
}

// A command that a signal keeps from its answer ends with the signal's code, and not with that of a
// bad answer.
func TestACommandThatASignalStopsHasNoAnswer(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	must.Do(t, os.WriteFile(log, []byte(`{"op":"allocate","mono_ns":1,"stream":1,"generation":1,"tag":"a","requested":8,"bytes":8}`+"\n"), 0o600))
	for signal, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		for _, args := range [][]string{
			{"fit", tables}, {"fit", "--json", tables}, {"fit", "http://127.0.0.1:1"}, {"replay", "--device=sim", "--speed=1",
				tables, tables}, {"history", log}, {"why", log},
			{"why", "http://127.0.0.1:1"}, {"doctor", "--device=sim"}, {"guard", "hunt"},
		} {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(signalled{signal})
			_, stderr, code := apart(ctx, t, args...)
			if code != want || !strings.Contains(stderr, "stopped by a signal: "+signal.String()) ||
				strings.Contains(stderr, "context canceled") {
				t.Errorf("%q stopped by %v: exit code %d\n%s", args, signal, code, stderr)
			}
		}
	}
}

// While fit reads and plays, which may take minutes, a terminal shows what it does. The line goes
// when there is an answer.
func TestFitShowsOnATerminalWhatItDoes(t *testing.T) {
	for _, eyes := range []bool{true, false} {
		out := must.Get(os.Create(filepath.Join(t.TempDir(), "out")))(t)
		errs := must.Get(os.Create(filepath.Join(t.TempDir(), "errs")))(t)
		c := newConsole(out, errs)
		c.forEyes = func(f *os.File) bool { return eyes && f == errs }
		code := must.Get(runFit(t.Context(), c, fitFlags{ordinal: -1, bounds: limitFlags{rows: 1 << 20, bytes: "1GiB"}},
			tables))(t)
		stdout, stderr := must.Get(os.ReadFile(out.Name()))(t), must.Get(os.ReadFile(errs.Name()))(t)
		shown := bytes.Contains(stderr, []byte("fit: reading "+tables)) && bytes.HasSuffix(stderr, []byte("\r\x1b[K"))
		if code != exitClean || shown != eyes || !eyes && len(stderr) > 0 || !bytes.HasPrefix(stdout, []byte("needs ")) {
			t.Errorf("on a terminal %v: exit code %d\n%q\n%s", eyes, code, stderr, stdout)
		}
	}
}

// A reader finds each flag of a command in the documents.
func TestTheDocumentsNameEveryFlag(t *testing.T) {
	page := string(must.Get(os.ReadFile("../../docs/configuration.md"))(t))
	code := 0
	for command, section := range map[string]string{"demo": "### The demo", "replay": "### Replay", "fit": "### Fit"} {
		_, text, found := strings.Cut(page, section+"\n")
		text, _, _ = strings.Cut(text, "\n### ")
		cmd, _, err := rootCommand(newConsole(os.Stdout, os.Stderr), &code).Find([]string{command})
		if err != nil || !found {
			t.Fatalf("%s: %v, a section: %v", command, err, found)
		}
		for _, flag := range regexp.MustCompile(`(?m)^ +--([\w-]+)`).FindAllStringSubmatch(cmd.Flags().FlagUsages(), -1) {
			if !strings.Contains(text, "`--"+flag[1]+" ") && !strings.Contains(text, "`--"+flag[1]+"`") {
				t.Errorf("the section on %s does not name --%s", command, flag[1])
			}
		}
	}
}
