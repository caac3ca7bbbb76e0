// Command write writes the mutated copies of the driven packages (cuda and what it imports)
// into a folder and prints the path of the overlay, for the go command's flag -overlay.
package main

import (
	"fmt"
	"os"

	"github.com/fencepost-gpu/fencepost/internal/proof/mutation"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./internal/proof/mutation/write DIR, in the module's folder")
		os.Exit(2)
	}
	root, err := os.Getwd()
	if err == nil {
		var path string
		if path, err = mutation.WriteOverlay(root, os.Args[1]); err == nil {
			fmt.Println(path)
			return
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
