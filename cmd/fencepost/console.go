package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/internal/terminal"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
)

// console is where a command prints. Whatever comes from outside is escaped: by
// printf, which keeps line ends for the layout, and once more by the writers.
type console struct {
	out, problems *terminal.Writer
	// stdout and stderr are the files themselves, for what was made to be written there as it is.
	stdout, stderr *os.File
	// jsonOnly: standard output is for JSON, and text for people goes to standard error.
	jsonOnly bool
	// forEyes reports whether a file is a terminal.
	forEyes func(*os.File) bool
	// brief is the line that [startBrief] shows now, nil for none.
	brief *liveLine
}

func newConsole(stdout, stderr *os.File) *console {
	return &console{out: terminal.NewWriter(stdout), problems: terminal.NewWriter(stderr), stdout: stdout, stderr: stderr,
		forEyes: func(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }}
}

// text is where text for people goes.
func (c *console) text() (*terminal.Writer, *os.File) {
	if c.jsonOnly {
		return c.problems, c.stderr
	}
	return c.out, c.stdout
}

// takeLog passes what libraries log through the console, until the function
// that it returns is called.
func (c *console) takeLog() (giveBack func()) {
	before := log.Writer()
	log.SetOutput(c.problems)
	return func() { log.SetOutput(before) }
}

// printf prints for people.
func (c *console) printf(format string, args ...any) {
	to, _ := c.text()
	terminal.Fprintf(to, format, args...)
}

// printJSON prints one line of JSON to standard output.
func (c *console) printJSON(v any) error {
	text, err := terminal.Encode(v)
	if err != nil {
		return err
	}
	_, err = c.out.Write(text)
	return err
}

// complain prints an error.
func (c *console) complain(err error) {
	if c.brief != nil {
		c.brief.end()
	}
	_, _ = io.WriteString(c.problems, terminal.Error("fencepost: ", err))
}

// complainOf says of a file which of its rows were passed over.
func (c *console) complainOf(file string, rows alloctrace.Passed) {
	if rows.TooLong > 0 {
		c.complain(fmt.Errorf("%s: rows of more than %d bytes were skipped: %d of them, the first in line %d", file, alloctrace.MaxLine, rows.TooLong, rows.FirstTooLong))
	}
	if rows.Cut > 0 {
		c.complain(fmt.Errorf("%s:%d: the file ends in the middle of this row, as after a crash or on a full disk; it is left out, and the whole rows before it are read", file, rows.Cut))
	}
	if rows.Missing > 0 {
		c.complain(fmt.Errorf("%s: %d records of its process are not in the file: it lost its beginning or some in between, or they are another runtime's; its live bytes are lower bounds", file, rows.Missing))
	}
}

// isTerminal reports whether standard output is for eyes.
func (c *console) isTerminal() bool { return c.forEyes(c.stdout) }

// untilStopped is a reader and a writer that fail once ctx has ended.
type untilStopped struct {
	ctx context.Context //nolint:containedctx // it is what the type is for
	r   io.Reader
	w   io.Writer
	// err is the first error of w.
	err error
}

// Read reads, unless the context has ended.
func (s *untilStopped) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.r.Read(p)
}

// Write writes, unless the context has ended.
func (s *untilStopped) Write(p []byte) (n int, err error) {
	if err = s.ctx.Err(); err == nil {
		n, err = s.w.Write(p)
	}
	if s.err == nil {
		s.err = err
	}
	return n, err
}

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
