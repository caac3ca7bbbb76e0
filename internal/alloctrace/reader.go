package alloctrace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
)

// MaxLine is the length in bytes of the longest line that is read. Lines of
// both formats are a fraction of it; without a bound, a file that is no trace
// could be one line of any length.
const MaxLine = 64 << 10

var gzipMagic = []byte{0x1f, 0x8b}

// lineParser is a format: it turns a line into a row, or skips it.
type lineParser interface {
	parse(line string) (row Row, ok bool, err *ParseError)
}

// Reader reads a trace row by row. It is not safe for concurrent use.
type Reader struct {
	name    string
	format  Format
	lines   *bufio.Reader
	gzipped bool
	parser  lineParser
	line    int
	skipped int
}

// NewReader detects compression and format from the first bytes of r. name
// stands for the file in errors, which are [ParseError].
func NewReader(name string, r io.Reader) (*Reader, error) {
	d := &Reader{name: name, lines: bufio.NewReaderSize(r, MaxLine)}
	magic, err := d.lines.Peek(len(gzipMagic))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, d.readError(err)
	}
	if bytes.Equal(magic, gzipMagic) {
		d.gzipped = true
		plain, err := gzip.NewReader(d.lines)
		if err != nil {
			return nil, d.readError(err)
		}
		d.lines = bufio.NewReaderSize(plain, MaxLine)
	}
	if err := d.detect(); err != nil {
		return nil, err
	}
	return d, nil
}

// detect looks at the first byte: a log starts with an object, a CSV with its
// header.
func (d *Reader) detect() error {
	first, err := d.lines.Peek(1)
	if errors.Is(err, io.EOF) {
		return bad("header", "", "the file is empty").at(d.name, 1)
	}
	if err != nil {
		return d.readError(err)
	}
	if first[0] == '{' {
		d.format, d.parser = FormatLog, logRows{}
		return nil
	}
	line, err := d.next()
	if err != nil {
		return err
	}
	if line != header {
		return bad("header", line, "neither the CSV header "+header+" nor a JSON object").at(d.name, 1)
	}
	d.format, d.parser = FormatRMM, &csvRows{}
	return nil
}

// Format is the format that was detected.
func (d *Reader) Format() Format { return d.format }

// Skipped counts the records passed over so far.
func (d *Reader) Skipped() int { return d.skipped }

// Next returns the next row, and io.EOF behind the last one. Any other error
// is a [ParseError] and final.
func (d *Reader) Next() (Row, error) {
	for {
		line, err := d.next()
		if err != nil {
			return Row{}, err
		}
		row, ok, perr := d.parser.parse(line)
		if perr != nil {
			return Row{}, perr.at(d.name, d.line)
		}
		if ok {
			row.Line = d.line
			return row, nil
		}
		d.skipped++
	}
}

// next returns a line without its end.
func (d *Reader) next() (string, error) {
	text, err := d.lines.ReadSlice('\n')
	if len(text) == 0 && errors.Is(err, io.EOF) {
		return "", io.EOF
	}
	d.line++
	if errors.Is(err, bufio.ErrBufferFull) {
		return "", bad("row", "", fmt.Sprintf("longer than %d bytes", MaxLine)).at(d.name, d.line)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return "", d.readError(err)
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r"), nil
}

// readError places an error of the file or of its compression. An early end
// is never a plain io.EOF, which means the end of the trace.
func (d *Reader) readError(err error) error {
	e := bad("file", "", err.Error())
	e.Err = err
	if d.gzipped {
		e.Field, e.Reason = "gzip", "damaged: "+err.Error()
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			e.Reason, e.Err = "truncated: the compressed data ends early", io.ErrUnexpectedEOF
		}
	}
	return e.at(d.name, d.line)
}
