// Command writeoverlay writes the mutated copies of the instrumented packages (cuda and what it imports)
// into a folder and prints the path of the overlay, for the go command's flag -overlay.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/fencepost-gpu/fencepost/dev/proof/mutation"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: writeoverlay DIR")
		os.Exit(2)
	}
	path, err := mutation.WriteOverlay(context.Background(), os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(path)
}
