// Package terminal prints what others wrote (files, tags, names, stacks, answers
// over HTTP, error texts that quote them) so that a terminal shows it and
// obeys none of it: what does not print is written as its escape, as
// [strconv.Quote] does. That is control characters of both sets, what turns the
// direction of writing or hides, separators other than the space, and bytes
// that are no UTF-8.
package terminal

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Escape is text on one line, with an escape for each character that does not
// print, line ends and tabs among them. A backslash stays as it is: the
// result is for eyes and not for a parser.
func Escape(text string) string { return escape(text, false) }

func escape(text string, keepLines bool) string {
	var out strings.Builder
	written := 0 // how much of text is in out
	var size int
	for at := 0; at < len(text); at += size {
		var r rune
		if r, size = utf8.DecodeRuneInString(text[at:]); passes(r, size, keepLines) {
			continue
		}
		quoted := strconv.Quote(text[at : at+size])
		out.WriteString(text[written:at] + quoted[1:len(quoted)-1])
		written = at + size
	}
	return out.String() + text[written:]
}

// passes reports whether a character is shown as it is.
func passes(r rune, size int, keepLines bool) bool {
	return (r != utf8.RuneError || size > 1) && strconv.IsPrint(r) || keepLines && r == '\n'
}

// Lines is a text whose line ends are the program's own layout. [Sprintf] and
// [Fprintf] keep them and escape the rest.
type Lines string

// Sprintf is [fmt.Sprintf] whose arguments are escaped, each as it comes out of
// its verb; the line ends of format stay.
func Sprintf(format string, args ...any) string {
	return fmt.Sprintf(format, foreign(args)...)
}

// Fprintf is [fmt.Fprintf] with the arguments of [Sprintf]. An error of out is
// out's to remember, as [Writer] does.
func Fprintf(out io.Writer, format string, args ...any) {
	_, _ = io.WriteString(out, Sprintf(format, args...))
}

// foreign wraps what may hold text.
func foreign(args []any) []any {
	wrapped := make([]any, len(args))
	for i, arg := range args {
		switch arg.(type) {
		case bool, int, int64, uint, uint64, float64:
			wrapped[i] = arg
		default:
			wrapped[i] = argument{arg}
		}
	}
	return wrapped
}

// argument is an argument that is formatted first and escaped then.
type argument struct{ value any }

// Format implements [fmt.Formatter].
func (a argument) Format(s fmt.State, verb rune) {
	_, ownLines := a.value.(Lines)
	_, _ = io.WriteString(s, escape(fmt.Sprintf(fmt.FormatString(s, verb), a.value), ownLines))
}

// Error is err for people, with prefix before each of its messages: one joined
// of several has a line for each, and no message has more than one.
func Error(prefix string, err error) string {
	var text strings.Builder
	for _, message := range messages(err) {
		text.WriteString(prefix + Escape(message) + "\n")
	}
	return text.String()
}

// messages takes joined errors apart, those that another only passes on too.
func messages(err error) []string {
	switch e := err.(type) { //nolint:errorlint // each level is looked at
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil && inner.Error() == err.Error() {
			return messages(inner)
		}
	case interface{ Unwrap() []error }:
		var all, texts []string
		for _, inner := range e.Unwrap() {
			all, texts = append(all, messages(inner)...), append(texts, inner.Error())
		}
		if strings.Join(texts, "\n") == err.Error() {
			return all
		}
	}
	return []string{err.Error()}
}
