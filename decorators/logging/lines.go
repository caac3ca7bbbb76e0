package logging

import (
	"bytes"
	"io"
)

// lineWriter writes records as lines of text.
type lineWriter struct {
	w io.Writer
	// preface goes out before the next line: a header, or what remains to be
	// written after a write that failed.
	preface []byte
	buf     []byte
}

// writeLines writes records, each as the line that appendLine makes of it,
// and returns how many lines got through whole. After a write that failed in
// the middle of a line the next one starts on a fresh line, so that a reader
// loses one line and not two.
func (l *lineWriter) writeLines(records []Record, appendLine func([]byte, *Record) []byte) (int, error) {
	front := len(l.preface)
	l.buf = append(l.buf[:0], l.preface...)
	for i := range records {
		l.buf = append(appendLine(l.buf, &records[i]), '\n')
	}
	buf := l.buf
	if len(buf) == 0 {
		return 0, nil
	}
	n, err := l.w.Write(buf)
	if err == nil && n < len(buf) {
		err = io.ErrShortWrite
	}
	if err == nil {
		l.preface = nil
		return len(records), nil
	}
	n = max(0, min(n, len(buf)))
	if n < front {
		l.preface = l.preface[n:]
		return 0, err
	}
	l.preface = nil
	if n > 0 && buf[n-1] != '\n' {
		l.preface = []byte{'\n'}
	}
	return bytes.Count(buf[front:n], []byte{'\n'}), err
}
