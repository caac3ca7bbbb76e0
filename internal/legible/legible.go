// Package legible bounds what errors repeat of settings, names and other texts of any length and
// bytes, where those enter an error.
package legible

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxValue is the most bytes of a quoted value, without the note of its length.
	MaxValue = 128
	// MaxText is the most bytes of a text.
	MaxText = 1 << 10
	// MaxKept is the most bytes of the text of an error that is kept.
	MaxKept = 2 << 10
)

// Value quotes a setting or a name: all of it, or as much as [MaxValue] bytes hold, and its length.
// What is no UTF-8, or cannot be printed, is escaped.
func Value[S ~string](value S) string {
	kept := string(value[:before(string(value), MaxValue)])
	quoted := strconv.Quote(kept)
	for len(quoted) > MaxValue {
		kept = kept[:before(kept, len(kept)-(len(quoted)-MaxValue+3)/4)] // an escape has four bytes at least where it has more than one
		quoted = strconv.Quote(kept)
	}
	if len(kept) == len(value) {
		return quoted
	}
	return fmt.Sprintf("%s... (%d bytes)", quoted, len(value))
}

// Name is a value that needs no quotes, or what [Value] is of another.
func Name[S ~string](value S) string {
	if quoted := Value(value); quoted != `"`+string(value)+`"` {
		return quoted
	}
	return string(value)
}

// Text is a text of which [MaxText] bytes are kept, the first and the last, as UTF-8 that can be
// printed. It returns a text that is such as it is, and allocates nothing then.
func Text(text string) string { return within(text, MaxText) }

// within is a text of which so many bytes are kept. A quarter of those is the text's end: there is
// the advice.
func within(text string, most int) string {
	if len(text) <= most && utf8.ValidString(text) && strings.IndexFunc(text, unprintable) < 0 {
		return text
	}
	if len(text) <= 2*most { // else most of it is left out anyway
		text = clean(text)
	}
	if len(text) <= most {
		return text
	}
	head, end := clean(text[:before(text, most)]), clean(text[before(text, len(text)-most):])
	mark := fmt.Sprintf("... (%d bytes in all) ...", len(text))
	for len(end) > most/4 { // whole runes
		_, n := utf8.DecodeRuneInString(end)
		end = end[n:]
	}
	return head[:before(head, most-most/4-len(mark))] + mark + end
}

// before is the begin of the rune that is at a byte of s, or at, if none begins just before.
func before(s string, at int) int {
	if at >= len(s) {
		return len(s)
	}
	for i := at; i > max(at-utf8.UTFMax, 0); i-- {
		if utf8.RuneStart(s[i]) {
			return i
		}
	}
	return at
}

// unprintable reports what a terminal may not show as it is. Lines may end.
func unprintable(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' }

// clean replaces what is no UTF-8 or cannot be printed.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unprintable(r) {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(text, string(utf8.RuneError)))
}

// Error is err with a text that [Text] bounds, nil if that is nil.
func Error(err error) error {
	if err == nil {
		return nil
	}
	return &bounded{err}
}

type bounded struct{ error }

func (b *bounded) Error() string { return Text(b.error.Error()) }
func (b *bounded) Unwrap() error { return b.error }

// Kept is what the module keeps of an error that code of the program returned: err itself if its
// text has at most [MaxKept] bytes. Of any other it keeps so much of the text, and those errors
// that it wraps whose own texts are as short: errors.Is and errors.As find these.
func Kept(err error) error {
	if err == nil {
		return nil
	}
	text := fmt.Sprint(err) // which also ends a panic of the error's own method
	if len(text) <= MaxKept {
		return err
	}
	return &cut{within(text, MaxKept), short(nil, err, mostWrapped)}
}

// cut is what is kept of an error with a long text.
type cut struct {
	text  string
	wraps []error
}

func (c *cut) Error() string   { return c.text }
func (c *cut) Unwrap() []error { return c.wraps }

// mostWrapped bounds what is kept of the errors that one wraps.
const mostWrapped = 16

// short appends those of the errors that err wraps, down to a depth, whose texts are short.
func short(to []error, err error, depth int) []error {
	var wrapped []error
	switch e := any(err).(type) { // the errors that it wraps, not what it is
	case interface{ Unwrap() error }:
		wrapped = []error{e.Unwrap()}
	case interface{ Unwrap() []error }:
		wrapped = e.Unwrap()
	}
	for _, w := range wrapped {
		switch {
		case w == nil || depth == 0 || len(to) >= mostWrapped:
		case len(fmt.Sprint(w)) <= MaxKept:
			to = append(to, w)
		default:
			to = short(to, w, depth-1)
		}
	}
	return to
}
