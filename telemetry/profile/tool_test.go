package profile_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/telemetry/profile"
)

// pprofTool runs go tool pprof on files.
func pprofTool(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"tool", "pprof"}, args...)...)
	cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("pprof %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func toFile(t *testing.T, name string, source profile.Source) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := profile.Write(file, 0, source); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

//go:noinline
func buildIndex(t *testing.T, h *held) { h.add(t, 4<<20, "index") }

//go:noinline
func loadColumn(t *testing.T, h *held) { h.add(t, 2<<20, "column") }

// The profile works with the tool that everybody has: what is in use, the
// difference of two files, a tag in front of the stacks, one tag alone.
func TestGoToolPprofReadsTheProfile(t *testing.T) {
	if testing.Short() {
		t.Skip("the go command builds pprof for it: make proof runs it")
	}
	rt, source := open(t)
	h := &held{allocate: func(bytes uint64, tag core.Tag) core.Block { return allocate(t, rt, bytes, 0, tag) }}
	buildIndex(t, h)
	small := allocate(t, rt, 3, 0, "crumbs")
	before := toFile(t, "before.pb.gz", source)
	loadColumn(t, h)
	loadColumn(t, h)
	free(t, rt, h.blocks[0])
	if err := rt.Guard().Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := rt.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := toFile(t, "after.pb.gz", source)

	for _, c := range []struct {
		name string
		args []string
		want []string // patterns of lines
		not  string
	}{
		{"top", []string{"-top", "-cum", "-unit=MB", before}, []string{`^Type: inuse_space`, ` 4MB .* \S*profile_test\.buildIndex`, ` 4MB .*\(\*held\)\.add`}, "debugguard"},
		{"objects", []string{"-top", "-cum", "-sample_index=inuse_objects", after}, []string{`^Type: inuse_objects`, ` 2 .*loadColumn`}, "buildIndex"},
		{"allocated", []string{"-top", "-sample_index=alloc_space", after}, []string{`^Type: alloc_space`, `unsampled$`}, "No samples"},
		{"pool", []string{"-comments", after}, []string{`^device 0: the pool holds \d+ bytes, and \d+ of them are cached`}, "profile_test"},
		{"difference", []string{"-top", "-cum", "-unit=MB", "-diff_base=" + before, after}, []string{` -4MB .*buildIndex`, ` 4MB .*loadColumn`}, ""},
		{"tag as root", []string{"-top", "-cum", "-unit=MB", "-tagroot=tag", after}, []string{` 4MB .* column$`}, ""},
		{"one tag", []string{"-top", "-cum", "-unit=MB", "-tagfocus=tag=index", before}, []string{`buildIndex`}, "crumbs"},
		{"tags", []string{"-tags", before}, []string{`tag: Total`, `state: Total`, `device: Total`, `stream: Total`, `: crumbs$`}, ""},
	} {
		out := pprofTool(t, c.args...)
		for _, want := range c.want {
			if !regexp.MustCompile(`(?m)` + want).MatchString(out) {
				t.Errorf("%s: no line like %q in\n%s", c.name, want, out)
			}
		}
		if c.not != "" && strings.Contains(out, c.not) {
			t.Errorf("%s: %q is in\n%s", c.name, c.not, out)
		}
	}
	free(t, rt, append(h.blocks[1:], small)...)
}

// held keeps blocks.
type held struct {
	allocate func(uint64, core.Tag) core.Block
	blocks   []core.Block
}

func (h *held) add(_ *testing.T, bytes uint64, tag core.Tag) {
	h.blocks = append(h.blocks, h.allocate(bytes, tag))
}
