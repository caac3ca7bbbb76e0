// Traces writes the contract of the spans into docs/traces.md. It is run
// in dev/.
package main

import (
	"fmt"
	"os"
)

const page = "../docs/traces.md"

func main() {
	if err := write(); err != nil {
		fmt.Fprintln(os.Stderr, "traces:", err)
		os.Exit(1)
	}
}

func write() error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	made, err := document(string(text))
	if err != nil {
		return err
	}
	return os.WriteFile(page, []byte(made), 0o644) //nolint:gosec // a page for everybody
}
