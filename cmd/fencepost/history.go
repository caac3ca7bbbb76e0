package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/alloctrace"
	"github.com/fencepost-gpu/fencepost/telemetry/history"
)

func historyCommand() *cobra.Command {
	var format, output string
	cmd := &cobra.Command{
		Use:   "history FILE",
		Short: "Convert a log for the viewers of Perfetto and PyTorch",
		Long: `History converts Fencepost's own log, JSON lines, plain or gzipped, for other
people's viewers:

  perfetto  a trace for ui.perfetto.dev and chrome://tracing: streams as tracks,
            launches as slices, waits as arrows, bytes as counters
  pytorch   a memory snapshot for pytorch.org/memory_viz and PyTorch's scripts
  jsonl     the lines themselves, unpacked, after every one of them was checked

Launches and waits are in a log of the level Uses. The file is checked whole
before anything is written. A conversion needs about a kilobyte of memory for
each line.

Exit codes: 0 converted; 1 the output could not be written; 2 the file or a flag
is bad.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := history.ParseFormat(format)
			if err != nil {
				return fmt.Errorf("--format: %w", err)
			}
			return convertLog(args[0], f, output)
		},
	}
	cmd.Flags().StringVar(&format, "format", string(history.Perfetto), "jsonl, perfetto or pytorch")
	cmd.Flags().StringVarP(&output, "output", "o", "", "file to write (default: standard output)")
	return cmd
}

// convertLog reads the log at path and writes it to the file output, or to
// standard output. A file that could not be written whole is removed.
func convertLog(path string, format history.Format, output string) error {
	events, err := readLog(path)
	if err != nil {
		return err
	}
	source := history.Source{
		Events:    func() []core.Event { return events },
		JSONLines: func(w io.Writer) error { return unpack(w, path) },
	}
	if output == "" {
		return asProblem(source.Write(os.Stdout, format))
	}
	file, err := os.Create(output)
	if err != nil {
		return asProblem(err)
	}
	err = errors.Join(source.Write(file, format), file.Close())
	if err != nil {
		err = errors.Join(err, os.Remove(output))
	}
	return asProblem(err)
}

func asProblem(err error) error {
	if err == nil {
		return nil
	}
	return &problemError{fmt.Errorf("history: %w", err)}
}

func readLog(path string) ([]core.Event, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return alloctrace.ReadEvents(path, file)
}

// unpack copies a file that may be gzipped.
func unpack(w io.Writer, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	plain := bufio.NewReader(file)
	if magic, _ := plain.Peek(2); !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		_, err = io.Copy(w, plain)
		return err
	}
	packed, err := gzip.NewReader(plain)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, packed) //nolint:gosec // it was read to its end before, and is a log
	return err
}
