package terminal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/fencepost-gpu/fencepost/internal/terminal"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// raw is the first character of text that a terminal would obey, if any.
func raw(text, permitted string) (found string) {
	for i, r := range text {
		bad := r == utf8.RuneError && !strings.HasPrefix(text[i:], "\uFFFD")
		if bad || !unicode.IsPrint(r) && !strings.ContainsRune(permitted, r) {
			return fmt.Sprintf("%q at %d", text[i:min(i+4, len(text))], i)
		}
	}
	return ""
}

func TestWhatDoesNotPrintIsSeenAndNotObeyed(t *testing.T) {
	for text, want := range map[string]string{
		"plain äöü 漢字 \\n":      "plain äöü 漢字 \\n",
		"\x1b[31mred":           `\x1b[31mred`,
		"a\nb\r\tc\x00\x7f":     `a\nb\r\tc\x00\x7f`,
		"\u009b31m \u0085":      `\u009b31m \u0085`,
		"\x9b31m":               `\x9b31m`,
		"\u202eevil\u2066":      `\u202eevil\u2066`,
		"\xff\xfe \uFFFD":       `\xff\xfe ` + "\uFFFD",
		"\u2028\u00a0\ufeff":    `\u2028\u00a0\ufeff`,
		"\U000e0041 tag letter": `\U000e0041 tag letter`,
	} {
		if got := terminal.Escape(text); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}

// The line ends of the format are the layout; those of an argument are not,
// whatever its type and verb.
func TestOnlyTheFormatsLineEndsAreLineEnds(t *testing.T) {
	err := errors.New("no\nway\x1b")
	got := terminal.Sprintf("%s\n%-6v|%q|%v %d %5.1f\n%v\n", "a\nb", "\x07", "\x1b", err, 7, 2.5, terminal.Lines("x\ny\x1b"))
	if want := "a\\nb\n\\a     |\"\\x1b\"|no\\nway\\x1b 7   2.5\nx\ny\\x1b\n"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := terminal.Sprintf("%v %s", []string{"\x1b", "b"}, []byte("\x1b")); got != `[\x1b b] \x1b` {
		t.Errorf("got %q", got)
	}
}

func TestJoinedErrorsHaveALineEach(t *testing.T) {
	forged := errors.New("bad\nfencepost: all is well")
	err := fmt.Errorf("%w", errors.Join(errors.New("first"), errors.Join(forged, errors.New("third"))))
	if got, want := terminal.Error("p: ", err), "p: first\np: bad\\nfencepost: all is well\np: third\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

type failing struct{ left int }

func (f *failing) Write(p []byte) (int, error) {
	if f.left--; f.left < 0 {
		return 0, errors.New("full")
	}
	return len(p), nil
}

func TestAWriterKeepsLineEndsAndRemembersAFailure(t *testing.T) {
	var b bytes.Buffer
	w := terminal.NewWriter(&b)
	if n, err := w.Write([]byte("a\x1b\nb\xff")); n != 5 || err != nil || b.String() != "a\\x1b\nb\\xff" {
		t.Errorf("%d %v %q", n, err, b.String())
	}
	w = terminal.NewWriter(&failing{left: 1})
	terminal.Fprintf(w, "fits")
	if w.Err() != nil {
		t.Error(w.Err())
	}
	terminal.Fprintf(w, "does not")
	terminal.Fprintf(w, "comes too late")
	if w.Err() == nil || w.Err().Error() != "full" {
		t.Errorf("%v", w.Err())
	}
}

// A reader of the JSON gets what was written.
func TestJSONOfWhatDoesNotPrintIsTheSameData(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		runes := make([]rune, 20)
		for i := range runes {
			runes[i] = []rune{random.Int32N(0x100), random.Int32N(0x3000), 0x2028 + random.Int32N(16), 0xe0000 + random.Int32N(0x80), random.Int32N(0xd800)}[random.IntN(5)]
		}
		want := map[string]string{string(runes): string(runes)}
		text, err := terminal.Encode(want)
		must.Do(t, err)
		if found := raw(string(text), "\n"); found != "" {
			t.Fatalf("seed %d: %s in %q", seed, found, text)
		}
		var got map[string]string
		if err := json.Unmarshal(text, &got); err != nil || got[string(runes)] != string(runes) {
			t.Fatalf("seed %d: %q became %q, %v", seed, want, got, err)
		}
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("\x1b]0;title\x07\u009b\u202e\xff\r\n", "v")
	f.Fuzz(func(t *testing.T, text, other string) {
		if found := raw(terminal.Escape(text), ""); found != "" {
			t.Errorf("%s in %q", found, terminal.Escape(text))
		}
		var b bytes.Buffer
		terminal.Fprintf(terminal.NewWriter(&b), "%s %v %q\n", text, []string{other}, other)
		if found := raw(b.String(), "\n"); found != "" || strings.Count(b.String(), "\n") != 1 {
			t.Errorf("%s in %q", found, b.String())
		}
		if document, err := json.Marshal([]string{text, other}); err == nil {
			var want, got []string
			if found := raw(string(terminal.JSON(document)), ""); found != "" {
				t.Errorf("%s in %q", found, terminal.JSON(document))
			}
			if json.Unmarshal(document, &want) != nil || json.Unmarshal(terminal.JSON(document), &got) != nil || strings.Join(want, "\x00") != strings.Join(got, "\x00") {
				t.Errorf("%q became %q", want, got)
			}
		}
	})
}
