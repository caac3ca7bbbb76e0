package lint

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Compile builds a block that is a program, as if it were a file of the
// module at root, and returns the compiler's complaints. Nothing is written
// into the repository: the file exists in an overlay only. scratch is a
// folder for temporary files.
func (b Block) Compile(ctx context.Context, root, scratch string) error {
	source := filepath.Join(scratch, "block.go")
	overlay := filepath.Join(scratch, "overlay.json")
	folder := filepath.Join(root, "internal", "lint", "documentblock")
	mapping, err := json.Marshal(map[string]map[string]string{
		"Replace": {filepath.Join(folder, "block.go"): source},
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(source, []byte(b.Code), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(overlay, mapping, 0o600); err != nil {
		return err
	}
	// Only the overlay's and the binary's path vary, and both are ours.
	build := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", filepath.Join(scratch, "out"), "./internal/lint/documentblock") //nolint:gosec // see above
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%s:%d: %w\n%s", b.File, b.Line, err, out)
	}
	return nil
}
