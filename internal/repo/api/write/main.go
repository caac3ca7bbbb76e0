// Write writes the listing of the module's API; see package api.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/fencepost-gpu/fencepost/internal/repo/api"
	"github.com/fencepost-gpu/fencepost/internal/repo/lint"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1)
	}
}

func run() error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	root, err := lint.Root(dir)
	if err != nil {
		return err
	}
	all, err := api.List(root)
	if err != nil {
		return err
	}
	return all.Write(filepath.Join(root, filepath.FromSlash(api.Folder)))
}
