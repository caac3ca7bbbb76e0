package mutation

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/fencepost-gpu/fencepost/internal/fencecheck/overlay"
)

const (
	module     = "github.com/fencepost-gpu/fencepost"
	switchPath = module + "/internal/fencecheck/mutation/toggle"
	program    = "./internal/fencecheck/mutation/kill"
)

// Build compiles program kill over the mutated package cuda and returns its
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
	build.Dir = root
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
	byFile := map[string][]numbered{}
	for i, s := range sites {
		byFile[s.File] = append(byFile[s.File], numbered{s, i})
	}
	files := overlay.Files{}
	for name, sites := range byFile {
		path := filepath.Join("cuda", name)
		source, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return "", err
		}
		if source, err = apply(source, sites, switchPath); err != nil {
			return "", err
		}
		files[path] = string(source)
	}
	return files.Write(root, scratch)
}
