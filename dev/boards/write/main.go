// Command write writes the generated files of dashboards/. It is run in
// dev/boards, by go generate.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/fencepost-gpu/fencepost/dev/boards"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "write:", err)
		os.Exit(1)
	}
}

func run() error {
	files, err := boards.Files()
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.FromSlash("../../"+name), text, 0o644); err != nil { //nolint:gosec // checked in, for everybody to read
			return fmt.Errorf("%w: run me in dev/boards", err)
		}
	}
	return nil
}
