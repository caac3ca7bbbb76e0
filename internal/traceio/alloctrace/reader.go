package alloctrace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// MaxLine is the length in bytes of the longest line that is read, its end
// included. Lines of both formats are a fraction of it. A row that is longer is
// skipped and counted, so that one of them does not cost the others.
const MaxLine = 64 << 10

var gzipMagic = []byte{0x1f, 0x8b}

// lineParser is a format: it turns a line into a row, or skips it.
type lineParser interface {
	parse(line string) (row Row, ok bool, err *ParseError)
	// mayBeCut reports whether a row that can be parsed may yet be the
	// beginning of a longer one.
	mayBeCut(line string) bool
}

// Reader reads a trace row by row. It is not safe for concurrent use.
type Reader struct {
	name    string
	format  Format
	limits  Limits
	lines   *bufio.Reader
	gzipped bool
	parser  lineParser
	// line is the number of the current line, of which header are no rows;
	// bytes is how much was read, unpacked.
	line, header int
	bytes        uint64
	skipped      int
	passed       Passed
	numbers      numbers
	jobs         []Job
	// pending is a first line that is a row, until it is read; unended says that
	// the current line is the last one and has no end.
	pending *string
	unended bool
}

// NewReader detects compression and format from the first bytes of r. name
// stands for the file in errors, which are [ParseError].
func (l Limits) NewReader(name string, r io.Reader) (*Reader, error) {
	d := &Reader{name: name, limits: l, lines: bufio.NewReaderSize(r, MaxLine)}
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

// supported ends what is said of a file of another kind.
const supported = "; supported are RMM's CSV (" + header + ") and the JSON lines of Fencepost's log, plain or gzipped"

// detect looks at the beginning: a log starts with an object, a CSV with its
// header, or with a row if that was lost.
func (d *Reader) detect() error {
	if _, err := d.lines.Peek(1); errors.Is(err, io.EOF) {
		return bad("header", "", "the file is empty").at(d.name, 1)
	} else if err != nil {
		return d.readError(err)
	}
	head, _ := d.lines.Peek(d.lines.Buffered())
	if kind := foreign(head); kind != "" {
		return bad("header", "", "this is "+kind+supported).at(d.name, 1)
	}
	if head[0] == '{' {
		d.format, d.parser = FormatLog, logRows{&d.numbers, &d.jobs}
		return nil
	}
	line, long, err := d.read()
	if err != nil {
		return err
	}
	if long {
		return bad("header", "", fmt.Sprintf("a first line of more than %d bytes: neither is this RMM's CSV nor JSON lines", MaxLine)+supported).at(d.name, 1)
	}
	rows := newCSVRows()
	names, err := rows.split(line)
	isHeader := err == nil && slices.Equal(names, columns)
	if !isHeader {
		if _, ok, _ := newCSVRows().parse(line); !ok {
			return bad("header", line, "neither RMM's CSV nor JSON lines"+supported).at(d.name, 1)
		}
		d.line, d.pending = 0, &line
	}
	d.format, d.parser, d.header = FormatRMM, rows, d.line
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
		if d.unended && d.parser.mayBeCut(line) {
			d.passed.Cut = d.line
			return Row{}, io.EOF
		}
		row, ok, wrong := d.parser.parse(line)
		if wrong != nil {
			return Row{}, d.refuse(wrong)
		}
		if ok {
			row.Line = d.line
			return row, nil
		}
		d.skipped++
	}
}

// refuse is the error of a row that is wrong: io.EOF if the file was cut in it,
// so that the row is no whole one or its last column is wrong.
func (d *Reader) refuse(wrong *ParseError) error {
	if d.unended && (wrong.Field == "row" || wrong.Field == columns[len(columns)-1]) {
		d.passed.Cut = d.line
		return io.EOF
	}
	return wrong.at(d.name, d.line)
}

// Jobs are those that had ended so far, in the order of their ends; they are among the records passed over.
func (d *Reader) Jobs() []Job { return d.jobs }

// Passed is what was passed over so far.
func (d *Reader) Passed() Passed {
	p := d.passed
	p.Missing = d.numbers.missing()
	return p
}

// next returns the next line that is not too long, without its end, and io.EOF
// behind the last one. A file of which every row is too long is an error.
func (d *Reader) next() (string, error) {
	for {
		text, long, err := d.read()
		switch {
		case errors.Is(err, io.EOF) && d.passed.TooLong > 0 && d.passed.TooLong == d.line-d.header:
			return "", bad("row", "", fmt.Sprintf("longer than %d bytes, and so is every other row", MaxLine)).at(d.name, d.passed.FirstTooLong)
		case err != nil:
			return "", err
		case !long:
			return text, nil
		}
		if d.passed.TooLong++; d.passed.TooLong == 1 {
			d.passed.FirstTooLong = d.line
		}
	}
}

// read reads one line. Of one that is too long it returns no text.
func (d *Reader) read() (text string, long bool, err error) {
	if d.pending != nil {
		text, d.pending = *d.pending, nil
		d.line++
		return text, false, nil
	}
	rows := d.line - d.header
	part, err := d.lines.ReadSlice('\n')
	if len(part) == 0 && errors.Is(err, io.EOF) {
		return "", false, io.EOF
	}
	d.line++
	if d.line-d.header > d.limits.Rows {
		return "", false, bad("file", "", fmt.Sprintf("more than %d rows, which is the limit (--max-rows)", d.limits.Rows)).at(d.name, d.line)
	}
	for {
		if d.bytes += uint64(len(part)); d.bytes > d.limits.Bytes {
			return "", false, bad("file", "", fmt.Sprintf("more than %d bytes unpacked, which is the limit (--max-bytes)", d.limits.Bytes)).at(d.name, d.line)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			break
		}
		long = true
		part, err = d.lines.ReadSlice('\n')
	}
	if rows > 0 && errors.Is(err, io.ErrUnexpectedEOF) { // of compressed data
		d.passed.Cut = d.line
		return "", false, io.EOF
	}
	if d.unended = errors.Is(err, io.EOF); err != nil && !d.unended {
		return "", false, d.readError(err)
	}
	if long {
		return "", true, nil
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(part), "\n"), "\r"), false, nil
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
