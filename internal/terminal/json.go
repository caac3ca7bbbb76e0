package terminal

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Encode is v as one line of JSON in which everything prints: what does not is
// there as \u escapes, so that who reads it gets the data unchanged.
func Encode(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return append(JSON(text), '\n'), nil
}

// JSON is the valid JSON text with \u escapes for what does not print. Outside
// of strings nothing but white space does not; that becomes spaces, and line
// ends stay. What is not UTF-8 becomes the replacement character, as for every
// reader of JSON.
func JSON(text []byte) []byte {
	var out bytes.Buffer
	written := 0 // how much of text is in out
	var size int
	for at := 0; at < len(text); at += size {
		var r rune
		if r, size = utf8.DecodeRune(text[at:]); passes(r, size, true) {
			continue
		}
		out.Write(text[written:at])
		if r < ' ' {
			out.WriteByte(' ')
		} else {
			writeEscape(&out, r)
		}
		written = at + size
	}
	if written == 0 {
		return text
	}
	return append(out.Bytes(), text[written:]...)
}

// writeEscape writes a character as JSON escapes it, as two halves if it is
// beyond 16 bits.
func writeEscape(out *bytes.Buffer, r rune) {
	halves := []rune{r}
	if r > 0xffff {
		high, low := utf16.EncodeRune(r)
		halves = []rune{high, low}
	}
	for _, half := range halves {
		digits := strconv.FormatUint(uint64(half), 16)
		out.WriteString(`\u` + "0000"[len(digits):] + digits)
	}
}
