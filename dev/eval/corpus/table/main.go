// Command table writes dev/corpus.md: it runs the corpus on simulated devices and
// adds what testdata/gpu.jsonl has of a GPU. It is run in the folder of package
// corpus, by go generate.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/fencepost-gpu/fencepost/dev/eval/corpus"
)

func main() {
	if err := write(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

func write(ctx context.Context) error {
	recorded, err := corpus.Recorded("testdata/gpu.jsonl")
	if err != nil {
		return err
	}
	simulated, err := corpus.Simulated(ctx)
	if err != nil {
		return err
	}
	return os.WriteFile(corpus.Page, []byte(corpus.Document(simulated, recorded)), 0o644) //nolint:gosec // a page for everybody
}
