package alloctrace

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// Read is [Limits.Read] with [DefaultLimits].
func Read(name string, r io.Reader) (*Trace, error) { return DefaultLimits.Read(name, r) }

// Read reads a whole trace and checks every row of it. name stands for the
// file in errors, which are [ParseError].
func (l Limits) Read(name string, r io.Reader) (*Trace, error) {
	d, err := l.NewReader(name, r)
	if err != nil {
		return nil, err
	}
	t := &Trace{Name: name, Format: d.Format()}
	for {
		row, err := d.Next()
		if errors.Is(err, io.EOF) {
			t.Skipped, t.Passed, t.Jobs = d.Skipped(), d.Passed(), d.Jobs()
			if d.format == FormatLog {
				t.Holes = d.numbers.holes()
			}
			return t, nil
		}
		if err != nil {
			return nil, err
		}
		t.Rows = append(t.Rows, row)
	}
}

// ReadFile reads the trace at path. A file that cannot be opened is a
// [ParseError] too, so that a caller has one kind of error to report.
func (l Limits) ReadFile(path string) (*Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		reason := err
		if e, ok := errors.AsType[*fs.PathError](err); ok {
			reason = e.Err // the path is in the error's place already
		}
		return nil, &ParseError{File: path, Field: "file", Reason: reason.Error(), Err: err}
	}
	defer f.Close()
	return l.Read(path, f)
}
