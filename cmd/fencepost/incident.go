package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencepost-gpu/fencepost/internal/terminal"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
)

func incidentCommand(c *console, code *int) *cobra.Command {
	return &cobra.Command{
		Use:   "incident FILE|FOLDER...",
		Short: "Print incident files for people",
		Long: `Incident prints what a process wrote into its folder for incidents (--incidents,
FENCEPOST_INCIDENTS): the bug, its victim, the launches that may have done it,
both stacks, the victim's last uses, and what was done around it. Of a folder it
prints all incidents. It passes over dumps of the history, which lie beside them,
and says so.

Exit codes: 0 printed; 2 a file cannot be read or is no incident, or none was
printed.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, files []string) error {
			*code = printIncidents(c, files)
			return nil
		},
	}
}

// printIncidents prints each file, and those of each folder. A bad one does not keep the others
// from being printed.
func printIncidents(c *console, paths []string) (code int) {
	printed, files := 0, incidentsIn(paths)
	for _, file := range files {
		in, err := incident.ReadFile(file)
		switch {
		case err != nil && isDump(file):
			c.complain(fmt.Errorf("%s: passed over: it is a dump of the history; fencepost history, replay, fit and why read its .jsonl.gz", file))
			continue
		case err != nil:
			if at, statErr := os.Stat(file); statErr == nil && at.IsDir() {
				err = fmt.Errorf("%s: the folder has no incidents: no file %s", file, filepath.Join(file, "*.json"))
			}
			c.complain(err)
			code = exitBadInput
			continue
		}
		if printed++; printed > 1 {
			c.printf("\n")
		}
		if len(files) > 1 {
			c.printf("%s\n", file)
		}
		c.printf("%s", terminal.Lines(in.String()))
	}
	if printed == 0 {
		return exitBadInput
	}
	return code
}

// incidentsIn has the files that lie in folders in place of the folders, the oldest first.
func incidentsIn(paths []string) (files []string) {
	for _, path := range paths {
		in, _ := filepath.Glob(filepath.Join(escapedGlob(path), "*.json"))
		if len(in) == 0 { // no folder, or one without incidents
			in = []string{path}
		}
		files = append(files, in...)
	}
	return files
}

// escapedGlob is a pattern for the path itself.
func escapedGlob(path string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(path)
}

// isDump reports whether a file is what a process writes beside its incidents: a dump of the
// history, which is compressed or has its name.
func isDump(path string) bool {
	if strings.Contains(filepath.Base(path), "-dump-") {
		return true
	}
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	var magic [2]byte
	_, err = io.ReadFull(file, magic[:])
	return err == nil && magic == [2]byte{0x1f, 0x8b}
}
