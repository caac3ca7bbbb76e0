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
	"strings"
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
	ctx, stop := untilSignal()
	defer stop()
	return runUntil(ctx, args)
}

// signalled is why a context ended: a signal.
type signalled struct{ os.Signal }

func (s signalled) Error() string { return "stopped by a signal: " + s.String() }

// Is lets the cause of a cancelled context match [context.Canceled], as its Err does.
func (s signalled) Is(target error) bool { return target == context.Canceled }

// untilSignal returns a context that the first SIGINT or SIGTERM ends. A second signal ends the
// process, for what does not listen to the first.
func untilSignal() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case s := <-signals:
			signal.Stop(signals)
			cancel(signalled{s})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

// exitStopped is the exit code of a command that the end of ctx kept from its answer: that of the
// signal, as shells have it.
func exitStopped(ctx context.Context) int {
	if s, ok := errors.AsType[signalled](context.Cause(ctx)); ok {
		if n, ok := s.Signal.(syscall.Signal); ok {
			return 128 + int(n)
		}
	}
	return exitProblem
}

// runUntil is run with a context whose end does what a signal does.
func runUntil(ctx context.Context, args []string) int {
	c := newConsole(os.Stdout, os.Stderr)
	defer c.takeLog()()
	code := exitClean
	root := rootCommand(c, &code)
	root.SetArgs(args)
	root.SetOut(c.out)
	root.SetErr(c.problems)
	err := root.ExecuteContext(ctx)
	if lost := c.out.Err(); err == nil && lost != nil {
		err = &problemError{fmt.Errorf("standard output: %w", lost)}
	}
	var problem *problemError
	switch {
	case err == nil:
		return code
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		c.complain(context.Cause(ctx))
		return exitStopped(ctx)
	}
	c.complain(err)
	if errors.As(err, &problem) {
		return exitProblem
	}
	return exitBadInput
}

// rootCommand is the command with all that are below it. They set code if they end without an
// error.
func rootCommand(c *console, code *int) *cobra.Command {
	root := &cobra.Command{
		Use:           "fencepost",
		Short:         "GPU memory with fences, budgets, a debug guard and telemetry",
		Version:       version.Line(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          knownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		SuggestionsMinimumDistance: 2,
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
	root.AddCommand(demoCommand(c, code), replayCommand(c, code), fitCommand(c, code), historyCommand(c), whyCommand(c),
		doctorCommand(c, code), guardCommand(c, code), incidentCommand(c, code))
	for _, cmd := range root.Commands() {
		cmd.Args = named(cmd.Args)
	}
	return root
}

// knownCommand refuses a word that is no command, and names those that it may be a slip for.
func knownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q: ", args[0])
	if near := root.SuggestionsFor(args[0]); len(near) > 0 {
		text += "did you mean " + strings.Join(near, " or ") + "? "
	}
	return errors.New(text + "fencepost --help lists all")
}

// named says beside what is wrong with the number of arguments which ones there are.
func named(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return fmt.Errorf("%w: say %s", err, cmd.UseLine())
		}
		return nil
	}
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
