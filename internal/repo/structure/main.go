// Structure measures how the product hangs together and writes it into
// testdata/structure.txt, so that a change of the code shows what it does to that:
//
//	go run ./internal/repo/structure
//
// It counts which types use which, how many of these uses run against the order of
// the layers, exported names, files and lines of code, and lists the functions that
// an allocation, a launch, a free and a finding pass. The product is the root
// package, core, cuda, the decorators and telemetry, and what they import from
// internal/, less the simulated device and the suites for tests; see layers.go.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fencepost-gpu/fencepost/internal/repo/lint"
)

// golden is where the text is checked in, below this package's folder.
const golden = "testdata/structure.txt"

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "structure:", err)
		os.Exit(1)
	}
}

// run writes the text of the repository that the working folder is in.
func run(ctx context.Context) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	root, err := lint.Root(dir)
	if err != nil {
		return err
	}
	text, err := measure(ctx, root)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, "internal", "repo", "structure", filepath.FromSlash(golden)), []byte(text), 0o644) //nolint:gosec // a text for everybody
}
