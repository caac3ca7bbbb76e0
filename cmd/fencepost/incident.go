package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencepost-gpu/fencepost/internal/terminal"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
)

func incidentCommand(c *console, code *int) *cobra.Command {
	return &cobra.Command{
		Use:   "incident FILE...",
		Short: "Print incident files for people",
		Long: `Incident prints what a process wrote into its folder for incidents (--incidents,
FENCEPOST_INCIDENTS): the bug, its victim, the launches that may have done it,
both stacks, the victim's last uses, and what was done around it.

Exit codes: 0 printed; 2 a file cannot be read or is no incident.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, files []string) error {
			*code = printIncidents(c, files)
			return nil
		},
	}
}

// printIncidents prints each file. A bad one does not keep the others from
// being printed.
func printIncidents(c *console, files []string) (code int) {
	for i, file := range files {
		in, err := incident.ReadFile(file)
		if err != nil {
			c.complain(fmt.Errorf("%w%s", err, advice(file)))
			code = exitBadInput
			continue
		}
		if i > 0 {
			c.printf("\n")
		}
		if len(files) > 1 {
			c.printf("%s\n", file)
		}
		c.printf("%s", terminal.Lines(in.String()))
	}
	return code
}

// advice says what to do with what lies beside incidents and is none.
func advice(file string) string {
	if strings.Contains(filepath.Base(file), "-dump-") {
		return "; it is a dump of the history: fencepost history and fencepost replay read its .jsonl.gz"
	}
	if at, err := os.Stat(file); err == nil && at.IsDir() {
		return "; name the files in it: " + filepath.Join(file, "*.json")
	}
	return ""
}
