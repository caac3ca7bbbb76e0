package mutation

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/fencepost-gpu/fencepost/dev/proof/overlay"
)

// The program that runs mutants, and the package that says which of them is active.
var (
	program    = overlay.Proofs + "/mutation/runmutants"
	switchPath = overlay.Proofs + "/mutation/activemutant"
)

// Build compiles program runmutants over the mutated packages and returns its path. It is called
// in the module of the proofs; nothing is written but into scratch, a folder for the changed copies
// and the program.
func Build(ctx context.Context, scratch string) (string, error) {
	return compile(ctx, scratch, "build", program)
}

// BuildTest does the same with the tests of a package, named by its import path or a path in the
// working directory. [activemutant.Variable] says what goes wrong in a process of it.
func BuildTest(ctx context.Context, scratch, pkg string) (string, error) {
	return compile(ctx, scratch, "test", "-c", pkg)
}

func compile(ctx context.Context, scratch, command string, args ...string) (string, error) {
	replaced, err := WriteOverlay(ctx, scratch)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(scratch, "mutants")
	args = append([]string{command, "-overlay", replaced, "-o", binary}, args...)
	build := exec.CommandContext(ctx, "go", args...) //nolint:gosec // only our own paths vary
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the mutants: %w\n%s", err, out)
	}
	return binary, nil
}

// WriteOverlay writes the changed copies into scratch, and the file that names
// them to the go command, whose path it returns.
func WriteOverlay(ctx context.Context, scratch string) (string, error) {
	root, err := overlay.Root(ctx)
	if err != nil {
		return "", err
	}
	_, files, err := mutate(root)
	if err != nil {
		return "", err
	}
	return files.Write(root, scratch)
}
