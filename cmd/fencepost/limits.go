package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
)

// limitFlags bound what is read of a file.
type limitFlags struct {
	rows  int
	bytes string
}

func (f *limitFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVar(&f.rows, "max-rows", alloctrace.DefaultLimits.Rows, "refuse a file of more rows")
	flags.StringVar(&f.bytes, "max-bytes", fmt.Sprintf("%dMiB", alloctrace.DefaultLimits.Bytes>>20), "refuse a file of more bytes, unpacked, such as 2GiB")
}

func (f *limitFlags) limits() (alloctrace.Limits, error) {
	if f.rows < 1 {
		return alloctrace.Limits{}, fmt.Errorf("--max-rows %d: say 1 or more", f.rows)
	}
	bytes, err := parseSize("--max-bytes", f.bytes)
	return alloctrace.Limits{Rows: f.rows, Bytes: bytes}, err
}

// parseSize reads a flag that is a number of bytes.
func parseSize(flag, text string) (uint64, error) {
	bytes, err := fencepost.ParseBytes(text)
	if err != nil {
		return 0, fmt.Errorf("%s %q: %w", flag, text, err)
	}
	if bytes == 0 {
		return 0, fmt.Errorf("%s %q: say more than 0", flag, text)
	}
	return bytes, nil
}
