// Command generate writes the generated files for Kubernetes; see the package in
// the folder above. It runs in that folder.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/fencepost-gpu/fencepost/tools/kubernetes"
)

const root = "../.."

func main() {
	if err := write(); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// write replaces the files that there are, and takes away those of boards and
// rules that are gone.
func write() error {
	files, err := kubernetes.Generate(root)
	if err != nil {
		return err
	}
	folder := filepath.Join(root, kubernetes.Folder)
	if err := os.RemoveAll(filepath.Join(folder, "kubernetes")); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(folder, "kustomization.yaml")); err != nil {
		return err
	}
	for name, text := range files {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			return err
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
