package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/fencepost-gpu/fencepost/cmd/fencepost/internal/output"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/terminal"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
	"github.com/fencepost-gpu/fencepost/telemetry/history"
)

// conversion is what one run of the command is to do.
type conversion struct {
	path, output string
	format       history.Format
	limits       alloctrace.Limits
}

func historyCommand(c *console) *cobra.Command {
	var format, out string
	var bounds limitFlags
	cmd := &cobra.Command{
		Use:   "history FILE",
		Short: "Convert a log for the viewers of Perfetto and PyTorch",
		Long: `History converts Fencepost's own log, JSON lines, plain or gzipped, for other
people's viewers:

  perfetto  a trace for ui.perfetto.dev and chrome://tracing: streams as tracks,
            launches as slices, waits as arrows, bytes as counters
  pytorch   a memory snapshot for pytorch.org/memory_viz and PyTorch's scripts
  jsonl     the lines themselves, unpacked, after every one of them was checked

Launches and waits are in a log of the level Uses. The file is read once, so it
may be a pipe, and checked whole before anything is written. Rows of more than
64 KiB are skipped, and it says how many. A conversion needs about a kilobyte of
memory for each line. Of a file that ends in the middle of a row, the whole rows
are converted, and it says so.

The output takes the place of what was there when it is whole, and not before;
it must not be the input. A device or a pipe is written to as it is.

Exit codes: 0 converted; 1 the output could not be written; 2 the file or a flag
is bad; 130 Ctrl-C.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := history.ParseFormat(format)
			if err != nil {
				return fmt.Errorf("--format: %w", err)
			}
			limits, err := bounds.limits()
			if err != nil {
				return err
			}
			return convertLog(cmd.Context(), c, conversion{path: args[0], output: out, format: f, limits: limits})
		},
	}
	cmd.Flags().StringVar(&format, "format", string(history.Perfetto), "jsonl, perfetto or pytorch")
	cmd.Flags().StringVarP(&out, "output", "o", "", "file to write (default: standard output)")
	bounds.add(cmd)
	return cmd
}

// convertLog reads the log and writes it in another form.
func convertLog(ctx context.Context, c *console, what conversion) error {
	file, err := os.Open(what.path)
	if err != nil {
		return err
	}
	defer file.Close()
	target, err := what.findOutput(c, file)
	if err != nil {
		return err
	}
	source, passed, err := what.read(ctx, file)
	if ctx.Err() != nil {
		return asProblem(ctx.Err())
	}
	if err != nil {
		return err
	}
	c.complainOf(what.path, passed)
	if target == nil {
		return what.write(ctx, source, c.stdout)
	}
	out, err := target.Create()
	if err != nil {
		return asProblem(err)
	}
	if err := what.write(ctx, source, out); err != nil {
		if discarded := out.Discard(); discarded != nil {
			c.complain(discarded)
		}
		return err
	}
	return asProblem(out.Commit())
}

// findOutput is where the output goes, nil for standard output. Neither may be
// the input.
func (what conversion) findOutput(c *console, input *os.File) (*output.Target, error) {
	in, err := input.Stat()
	if err != nil {
		return nil, err
	}
	if what.output != "" {
		target, err := output.Find(what.output, in)
		if err != nil && !errors.Is(err, output.ErrInput) {
			return nil, asProblem(err)
		}
		return target, err
	}
	if out, err := c.stdout.Stat(); err == nil && output.IsInput(out, in) {
		return nil, fmt.Errorf("standard output: %w", output.ErrInput)
	}
	if what.format == history.PyTorch && c.isTerminal() {
		return nil, fmt.Errorf("--format=%s: a snapshot is not for terminals: name a file with --output", what.format)
	}
	return nil, nil
}

// read reads the log once.
func (what conversion) read(ctx context.Context, file io.Reader) (history.Source, alloctrace.Passed, error) {
	var events []oplog.Event
	var lines bytes.Buffer
	passed, err := what.limits.EachEvent(what.path, &untilStopped{ctx: ctx, r: file}, func(line string, e oplog.Event) {
		if what.format != history.JSONLines {
			events = append(events, e)
			return
		}
		lines.Write(terminal.JSON([]byte(line)))
		lines.WriteByte('\n')
	})
	return history.Source{
		Events:    func() []oplog.Event { return events },
		JSONLines: func(w io.Writer) error { _, err := w.Write(lines.Bytes()); return err },
	}, passed, err
}

// write writes the source. What cannot be written in that form is the input's
// fault, everything else the output's.
func (what conversion) write(ctx context.Context, source history.Source, out io.Writer) error {
	w := &untilStopped{ctx: ctx, w: out}
	err := source.Write(w, what.format)
	if err != nil && w.err == nil {
		return fmt.Errorf("%s: %w", what.path, err)
	}
	return asProblem(err)
}

func asProblem(err error) error {
	if err == nil {
		return nil
	}
	return &problemError{fmt.Errorf("history: %w", err)}
}
