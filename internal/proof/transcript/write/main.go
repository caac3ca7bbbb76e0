// Program write rewrites the transcripts of the fences: go run
// ./internal/proof/transcript/write, in the module's folder.
package main

import (
	"fmt"
	"os"

	"github.com/fencepost-gpu/fencepost/internal/proof/transcript"
)

func main() {
	files, err := transcript.Files("internal/proof/transcript")
	for _, f := range files {
		if err == nil {
			err = f.Write()
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "transcript:", err)
		os.Exit(1)
	}
}
