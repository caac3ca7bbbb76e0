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
	if printsWhole(text) {
		return text
	}
	out := bytes.NewBuffer(make([]byte, 0, len(text)+64))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case passes(r, size, true):
			out.Write(text[:size])
		case r < ' ':
			out.WriteByte(' ')
		default:
			writeEscape(out, r)
		}
		text = text[size:]
	}
	return out.Bytes()
}

func printsWhole(text []byte) bool {
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if !passes(r, size, true) {
			return false
		}
		text = text[size:]
	}
	return true
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
