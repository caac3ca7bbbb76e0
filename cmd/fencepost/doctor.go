package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cmd/fencepost/internal/doctor"
)

// doctorTime bounds the self-test on a device that does not answer.
const doctorTime = time.Minute

type doctorFlags struct {
	device, resource string
	ordinal          int
	json             bool
}

func doctorCommand(c *console, code *int) *cobra.Command {
	var f doctorFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine has, what is missing, and what to do about it",
		Long: `Doctor looks at the CUDA driver and its devices, at what containers and limits
do to them, and at the variables that are set. Then it opens a runtime, and
allocates, fills, verifies, copies back and frees a block there.

Exit codes: 0 Fencepost runs here as asked, which for --device=auto may be on
the simulated device; 1 it does not: a GPU was asked for and cannot be used, or
one is there and is broken; 2 a bad flag or variable; 130 Ctrl-C.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			*code, err = runDoctor(cmd.Context(), c, f)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.device, "device", string(fencepost.Auto), "auto, cuda or sim")
	flags.IntVar(&f.ordinal, "ordinal", 0, "the device's number")
	flags.StringVar(&f.resource, "resource", "", "async, pool or direct (default: pool where the device maps memory, else async)")
	flags.BoolVar(&f.json, "json", false, "print one JSON object instead of text")
	return cmd
}

func runDoctor(ctx context.Context, c *console, f doctorFlags) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, doctorTime)
	defer cancel()
	cfg := fencepost.Config{Device: fencepost.DeviceKind(f.device), Ordinal: f.ordinal, Resource: fencepost.Backend(f.resource)}
	if err := cfg.Check(); err != nil {
		return exitBadInput, err
	}
	report := doctor.Collect(ctx, doctor.Here(), cfg)
	if errors.Is(ctx.Err(), context.Canceled) { // the self-test failed for that
		return exitProblem, &problemError{ctx.Err()}
	}
	if f.json {
		if err := c.printJSON(report); err != nil {
			return exitProblem, &problemError{err}
		}
	} else {
		report.Print(c.out)
	}
	if !report.OK {
		return exitProblem, nil
	}
	return exitClean, nil
}
