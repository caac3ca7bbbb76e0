// Command fencepost shows and exercises the runtime: "demo" runs the whole
// stack on real allocation traces and on a sort and hash join, "replay" plays
// allocation traces of the user's, "fit" says how much memory such a program needs, "history" converts a log for the viewers of
// Perfetto and PyTorch, "why" says what a request waited for on the device, "doctor"
// says what a machine has and what is missing, "guard" switches the debug guard of a
// running process, and "incident" prints the files in which a process wrote what was found.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fencepost-gpu/fencepost/internal/environ"
	"github.com/fencepost-gpu/fencepost/internal/version"
)

// The exit codes.
const (
	exitClean    = 0
	exitProblem  = 1 // something was wrong, leaked, refused or found; for doctor, it does not run here
	exitBadInput = 2 // a flag, an argument or a file
	exitNotSeen  = 3 // a planted bug that this tier cannot see
)

func main() { os.Exit(run(os.Args[1:])) }

// run is main with an exit code, so that tests can call it.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // a second signal ends what does not listen to the first
	return runUntil(ctx, args)
}

// runUntil is run with a context whose end does what a signal does.
func runUntil(ctx context.Context, args []string) int {
	c := newConsole(os.Stdout, os.Stderr)
	defer c.takeLog()()
	root := &cobra.Command{
		Use:           "fencepost",
		Short:         "GPU memory with fences, budgets, a debug guard and telemetry",
		Version:       version.Line(),
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			switch cmd.Name() {
			case "history", "why", "guard", "incident": // the others open a runtime, which says it, or list it
				for _, u := range environ.Unknown(os.Environ()) {
					c.complain(errors.New(u.String()))
				}
			}
		},
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	code := exitClean
	root.AddCommand(demoCommand(c, &code), replayCommand(c, &code), fitCommand(c, &code), historyCommand(c), whyCommand(c), doctorCommand(c, &code), guardCommand(c, &code), incidentCommand(c, &code))
	root.SetArgs(args)
	root.SetOut(c.out)
	root.SetErr(c.problems)
	err := root.ExecuteContext(ctx)
	if lost := c.out.Err(); err == nil && lost != nil {
		err = &problemError{fmt.Errorf("standard output: %w", lost)}
	}
	if err == nil {
		return code
	}
	c.complain(err)
	var problem *problemError
	if errors.As(err, &problem) {
		return exitProblem
	}
	return exitBadInput
}

// parseBudget reads the flag --budget; empty means the default.
func parseBudget(flag string) (uint64, error) {
	if flag == "" {
		return 0, nil
	}
	return parseSize("--budget", flag)
}

// problemError is an error of the run and not of its input.
type problemError struct{ err error }

func (e *problemError) Error() string { return e.err.Error() }
func (e *problemError) Unwrap() error { return e.err }
