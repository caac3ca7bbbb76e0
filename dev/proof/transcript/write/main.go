// Program write rewrites the transcripts of the fences: go -C dev run
// ./proof/transcript/write.
package main

import (
	"fmt"
	"os"

	"github.com/fencepost-gpu/fencepost/dev/proof/transcript"
)

func main() {
	files, err := transcript.Files("proof/transcript")
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
