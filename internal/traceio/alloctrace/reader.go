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
	tooLong      TooLong
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
	line, long, err := d.read()
	if err != nil {
		return err
	}
	if long {
		return bad("header", "", fmt.Sprintf("longer than %d bytes: neither the CSV header nor a JSON object", MaxLine)).at(d.name, 1)
	}
	d.header = 1
	rows := newCSVRows()
	if names, err := rows.split(line); err != nil || !slices.Equal(names, columns) {
		return bad("header", line, "neither the CSV header "+header+" nor a JSON object").at(d.name, 1)
	}
	d.format, d.parser = FormatRMM, rows
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

// TooLong is the rows that were skipped because they are longer than [MaxLine].
func (d *Reader) TooLong() TooLong { return d.tooLong }

// next returns the next line that is not too long, without its end, and io.EOF
// behind the last one. A file of which every row is too long is an error.
func (d *Reader) next() (string, error) {
	for {
		text, long, err := d.read()
		switch {
		case errors.Is(err, io.EOF) && d.tooLong.Rows > 0 && d.tooLong.Rows == d.line-d.header:
			return "", bad("row", "", fmt.Sprintf("longer than %d bytes, and so is every other row", MaxLine)).at(d.name, d.tooLong.First)
		case err != nil:
			return "", err
		case !long:
			return text, nil
		}
		if d.tooLong.Rows++; d.tooLong.Rows == 1 {
			d.tooLong.First = d.line
		}
	}
}

// read reads one line. Of one that is too long it returns no text.
func (d *Reader) read() (text string, long bool, err error) {
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
	if err != nil && !errors.Is(err, io.EOF) {
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
