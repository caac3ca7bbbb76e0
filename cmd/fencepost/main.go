// Command fencepost shows and exercises the runtime: "demo" runs the whole
// stack on real allocation traces and on a sort and hash join, "replay" plays
// allocation traces of the user's, "history" converts a log for the viewers of
// Perfetto and PyTorch, "doctor" says what a machine has and what is missing,
// "guard" switches the debug guard of a running process, and "incident" prints
// the files in which a process wrote what was found.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fencepost-gpu/fencepost"
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
	root := &cobra.Command{
		Use:           "fencepost",
		Short:         "GPU memory with fences, budgets, a debug guard and telemetry",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	code := exitClean
	root.AddCommand(demoCommand(&code), replayCommand(&code), historyCommand(), doctorCommand(&code), guardCommand(&code), incidentCommand(&code))
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return code
	}
	fmt.Fprintln(os.Stderr, "fencepost:", err)
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
	bytes, err := fencepost.ParseBytes(flag)
	if err != nil {
		return 0, fmt.Errorf("--budget %q: %w", flag, err)
	}
	return bytes, nil
}

// problemError is an error of the run and not of its input.
type problemError struct{ err error }

func (e *problemError) Error() string { return e.err.Error() }
func (e *problemError) Unwrap() error { return e.err }
