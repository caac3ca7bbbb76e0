package mutation

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	overlay, err := writeOverlay(root, scratch)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(scratch, "kill")
	build := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", binary, program) //nolint:gosec // only our own paths vary
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
	replace := map[string]string{}
	for name, sites := range byFile {
		original, changed := filepath.Join(root, "cuda", name), filepath.Join(scratch, name)
		source, err := os.ReadFile(original)
		if err != nil {
			return "", err
		}
		if source, err = apply(source, sites, switchPath); err != nil {
			return "", err
		}
		if err := os.WriteFile(changed, source, 0o600); err != nil {
			return "", err
		}
		replace[original] = changed
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(scratch, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}
