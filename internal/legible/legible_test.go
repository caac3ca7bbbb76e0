package legible_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fencepost-gpu/fencepost/internal/legible"
)

func TestAShortTextIsLeftAlone(t *testing.T) {
	for _, text := range []string{"", "say auto, cuda or sim", "模型\n\tzwei", strings.Repeat("x", legible.MaxText)} {
		if got := legible.Text(text); got != text {
			t.Errorf("%q becomes %q", text, got)
		}
	}
	if got := legible.Value("tpu\x00"); got != `"tpu\x00"` {
		t.Errorf("a value is %s", got)
	}
}

func TestBeginAndEndOfALongTextAreKept(t *testing.T) {
	got := legible.Text("open " + strings.Repeat("ü\xff\x1b", 1<<20) + ": name a file")
	if !strings.HasPrefix(got, "open ü") || !strings.HasSuffix(got, ": name a file") || !strings.Contains(got,
		"(4194322 bytes in all)") {
		t.Errorf("%q", got)
	}
	if got := legible.Value(strings.Repeat("ü", 1000)); !strings.HasPrefix(got, `"üü`) || !strings.HasSuffix(got,
		`"... (2000 bytes)`) || legible.Name("sort.keys") != "sort.keys" || legible.Name("a\n") != `"a\n"` {
		t.Errorf("%s", got)
	}
	err := legible.Error(&fs.PathError{Op: "open", Path: strings.Repeat("n", 1<<20), Err: fs.ErrExist})
	if !errors.Is(err, fs.ErrExist) || len(err.Error()) > legible.MaxText || legible.Error(nil) != nil {
		t.Errorf("%v", err)
	}
}

func FuzzText(f *testing.F) {
	f.Add("a text", uint16(5000))
	f.Add("\xff\x1b\u2028ü", uint16(2000))
	f.Fuzz(func(t *testing.T, part string, times uint16) {
		text := strings.Repeat(part, int(times)%4000)
		if len(text) > 1<<20 {
			text = text[:1<<20]
		}
		asked(t, text)
	})
}

func asked(t *testing.T, text string) {
	t.Helper()
	for name, s := range map[string]string{"Text": legible.Text(text), "Value": legible.Value(text)} {
		if len(s) > legible.MaxText || !utf8.ValidString(s) || strings.ContainsAny(s, "\x1b\x00\x07\x7f") {
			t.Errorf("%s of %d bytes, %.80q..., is %d bytes: %q", name, len(text), text, len(s), s)
		}
	}
}

// Texts of any bytes about the bounds.
func TestAnyTextIsBoundedAndLegible(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, all := range []string{"\xff", "\x00", "ü", "\u2028"} {
		for _, n := range []int{1, 700, 1024, 1025, 2048, 2049, 5000, 1 << 20} {
			asked(t, strings.Repeat(all, n))
		}
	}
	for range 2000 {
		text := make([]byte, rng.IntN(3*legible.MaxText))
		for i := range text {
			text[i] = byte(rng.IntN(256))
			if rng.IntN(3) > 0 {
				text[i] = 'a'
			}
		}
		asked(t, string(text))
	}
}

// An error that is kept has a bounded text, and is still what it was of the errors with short
// texts.
func TestAKeptErrorIsBoundedAndStillWhatItWas(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	path := &fs.PathError{Op: "open", Path: "file", Err: fs.ErrExist}
	for name, err := range map[string]error{
		"short":       path,
		"wrapped":     fmt.Errorf("%s: %w", long, path),
		"deep":        fmt.Errorf("%s: %w", long, fmt.Errorf("%s: %w", long, path)),
		"joined":      errors.Join(errors.New(long), path),
		"beside nil":  fmt.Errorf("%s: %w, %w", long, error(nil), path),
		"long inside": fmt.Errorf("%w: %w", errors.New(long), path),
	} {
		kept := legible.Kept(err)
		if n := len(kept.Error()); n > legible.MaxKept {
			t.Errorf("%s: %d bytes are kept", name, n)
		}
		if got, ok := errors.AsType[*fs.PathError](kept); !ok || got != path || !errors.Is(kept, fs.ErrExist) {
			t.Errorf("%s: it is no more what it was: %.80v", name, kept)
		}
	}
	if legible.Kept(nil) != nil || legible.Kept(path) != error(path) {
		t.Error("a short error was changed")
	}
}
