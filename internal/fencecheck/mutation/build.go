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
	replaced, err := writeOverlay(root, scratch)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(scratch, "kill")
	build := exec.CommandContext(ctx, "go", "build", "-overlay", replaced, "-o", binary, program) //nolint:gosec // only our own paths vary
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the mutants: %w\n%s", err, out)
	}
	return binary, nil
}

// writeOverlay writes the changed copies, and the file that names them to the
// go command.
func writeOverlay(root, scratch string) (string, error) {
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
