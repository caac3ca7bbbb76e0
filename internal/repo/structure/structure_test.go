package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost-gpu/fencepost/internal/repo/lint"
)

// TestTheStructureIsAsItIsWrittenDown compares the text that is checked in with what
// the code is now.
func TestTheStructureIsAsItIsWrittenDown(t *testing.T) {
	if testing.Short() {
		t.Skip("it reads the types of the whole product: make check runs it")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command here")
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	root, err := lint.Root(dir)
	if err != nil {
		t.Fatal(err)
	}
	got, err := measure(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.FromSlash(golden))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the structure of the product has changed; look at what did, and then: go run ./internal/repo/structure\n%s", diff)
	}
}
