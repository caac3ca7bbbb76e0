package main

import (
	"bytes"
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
)

//go:embed main.go
var source []byte

// The example is copied into a module of its own, built and run there: what it
// needs of this module is public, and nothing comes from the network.
func TestHelloRunsAsAModuleOfItsOwn(t *testing.T) {
	root := must(filepath.Abs("../.."))
	if _, err := exec.LookPath("go"); err != nil || !exists(filepath.Join(root, "go.mod")) {
		t.Skip("no go command here, or no module")
	}
	dir := t.TempDir()
	for name, text := range map[string][]byte{
		"main.go": source, "add.ptx": ptx, "go.mod": moduleOf(t, root), "go.sum": must(os.ReadFile(filepath.Join(root, "go.sum"))),
	} {
		must(0, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	run(t, dir, "go", "build", asTheTest(), "-o", "hello", ".")

	right := run(t, dir, "./hello")
	for _, want := range []string{"[11 12 13]\n[101 102 103]\n", "span gpumem.launch add_each [", `"gpumem.launch.name":"add_each"`} {
		if !strings.Contains(right, want) {
			t.Errorf("it does not print %q:\n%s", want, right)
		}
	}
	if strings.Contains(right, "found") {
		t.Errorf("it finds a bug that is not there:\n%s", right)
	}
	wrong := run(t, dir, "./hello", "-bug", "1")
	if found := regexp.MustCompile(`found oob-write in hello by \[launch \d+ "add_each" on stream \d+ [^\]]*\]`).FindAllString(wrong, -1); len(found) != 2 || strings.Contains(strings.Join(found, ""), "copy.") {
		t.Errorf("with the bug it does not name the kernel, and it alone, for both requests:\n%s", wrong)
	}
}

// asTheTest is the flag with which this test was built: so what the example is
// built from is built already.
func asTheTest() string {
	info, _ := debug.ReadBuildInfo() // a test always has it
	for _, s := range info.Settings {
		if s.Key == "-race" {
			return "-race=" + s.Value
		}
	}
	return "-race=false"
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// moduleOf is a module that uses the one at root, and of all others the versions
// that it uses.
func moduleOf(t *testing.T, root string) []byte {
	t.Helper()
	text := string(must(os.ReadFile(filepath.Join(root, "go.mod"))))
	_, requirements, ok := strings.Cut(text, "\n\n")
	if !ok {
		t.Fatal("go.mod does not begin with a module line")
	}
	const path = "github.com/fencepost-gpu/fencepost"
	return []byte("module example.com/hello\n\n" + requirements + "\nrequire " + path + " v0.0.0\n\nreplace " + path + " => " + strconv.Quote(root) + "\n")
}

// run runs a command without a network, on the simulated device.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(withoutOurs(os.Environ()), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off", "FENCEPOST_DEVICE=sim")
	var errors bytes.Buffer
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s%s", name, args, err, out, errors.Bytes())
	}
	return string(out)
}

// withoutOurs leaves out the variables that would change what is built.
func withoutOurs(env []string) []string {
	return slices.DeleteFunc(env, func(entry string) bool { return strings.HasPrefix(entry, "FENCEPOST_") })
}

// It is there to be read in one go.
func TestHelloHasAtMostSeventyLines(t *testing.T) {
	if n := bytes.Count(source, []byte("\n")); n > 70 {
		t.Errorf("main.go has %d lines", n)
	}
}
