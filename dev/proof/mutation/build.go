package mutation

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/fencepost-gpu/fencepost/dev/proof/driven"
	"github.com/fencepost-gpu/fencepost/dev/proof/overlay"
)

const (
	module     = "github.com/fencepost-gpu/fencepost"
	switchPath = module + "/dev/proof/mutation/toggle"
	program    = "./proof/mutation/kill"
)

// Build compiles program kill over the mutated packages and returns its
// path. root is the module's folder, in which nothing is written; scratch is a
// folder for the changed copies and the program.
func Build(ctx context.Context, root, scratch string) (string, error) {
	return compile(ctx, root, scratch, "build", program)
}

// BuildTest does the same with a package's tests. The variable of package toggle
// says what goes wrong in a process of it.
func BuildTest(ctx context.Context, root, scratch, pkg string) (string, error) {
	return compile(ctx, root, scratch, "test", "-c", pkg)
}

func compile(ctx context.Context, root, scratch, command string, args ...string) (string, error) {
	replaced, err := WriteOverlay(root, scratch)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(scratch, "mutants")
	args = append([]string{command, "-overlay", replaced, "-o", binary}, args...)
	build := exec.CommandContext(ctx, "go", args...) //nolint:gosec // only our own paths vary
	build.Dir = filepath.Join(root, "dev")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the mutants: %w\n%s", err, out)
	}
	return binary, nil
}

// WriteOverlay writes the changed copies into scratch, and the file that names
// them to the go command, whose path it returns.
func WriteOverlay(root, scratch string) (string, error) {
	sites := Sites()
	if err := check(sites); err != nil {
		return "", err
	}
	list, err := driven.Files(root)
	if err != nil {
		return "", err
	}
	byFile := map[*driven.File][]numbered{}
	for i, s := range sites {
		file, err := list.Find(s.File, s.method()+"(")
		if err != nil {
			return "", fmt.Errorf("site %q: %w", s.Name, err)
		}
		byFile[file] = append(byFile[file], numbered{s, i})
	}
	files := overlay.Files{}
	for file, sites := range byFile {
		text, err := apply([]byte(file.Text), sites, switchPath)
		if err != nil {
			return "", err
		}
		files[file.Path] = string(text)
	}
	return files.Write(root, scratch)
}
