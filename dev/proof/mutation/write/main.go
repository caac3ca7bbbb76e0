// Command write writes the mutated copies of the driven packages (cuda and what it imports)
// into a folder and prints the path of the overlay, for the go command's flag -overlay.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/fencepost-gpu/fencepost/dev/proof/mutation"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go -C dev run ./proof/mutation/write DIR, ")
		os.Exit(2)
	}
	root, err := filepath.Abs("..")
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
