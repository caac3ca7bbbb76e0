// Package legible bounds what errors repeat of settings, names and other texts of any length and bytes, where those enter an error.
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
	tail    = MaxText / 4 // of those, the last of a longer text: there is the advice
)

// Value quotes a setting or a name: all of it, or as much as [MaxValue] bytes hold, and its length. What is no UTF-8, or cannot be
// printed, is escaped.
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

// Text is a text of which [MaxText] bytes are kept, the first and the last, as UTF-8 that can be printed. It returns a text that is
// such as it is, and allocates nothing then.
func Text(text string) string {
	if len(text) <= MaxText && utf8.ValidString(text) && strings.IndexFunc(text, unprintable) < 0 {
		return text
	}
	if len(text) <= 2*MaxText { // else most of it is left out anyway
		text = clean(text)
	}
	if len(text) <= MaxText {
		return text
	}
	head, end := clean(text[:before(text, MaxText)]), clean(text[before(text, len(text)-MaxText):])
	mark := fmt.Sprintf("... (%d bytes in all) ...", len(text))
	for len(end) > tail { // whole runes
		_, n := utf8.DecodeRuneInString(end)
		end = end[n:]
	}
	return head[:before(head, MaxText-tail-len(mark))] + mark + end
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
