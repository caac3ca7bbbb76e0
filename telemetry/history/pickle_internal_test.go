package history

import (
	"bytes"
	"math"
	"os/exec"
	"strings"
	"testing"
)

// python runs a script of Python's with a file on its standard input.
func python(t *testing.T, input []byte, args ...string) string {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here")
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Stdin = bytes.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("python3: %v\n%s", err, out)
	}
	return string(out)
}

func TestPythonReadsWhatThePicklerWrites(t *testing.T) {
	var file bytes.Buffer
	p := newPickler(&file)
	p.beginDict()
	p.key("numbers")
	p.beginList()
	for _, n := range []int64{0, 1, 255, 256, 65535, 65536, 1<<31 - 1, 1 << 31, -1, -1 << 31, -1<<31 - 1, math.MaxInt64, math.MinInt64} {
		p.int(n)
		p.item()
	}
	for _, n := range []uint64{7, 1 << 47, math.MaxInt64, 1 << 63, math.MaxUint64} {
		p.uint(n)
		p.item()
	}
	p.endList()
	p.key("texts")
	p.beginList()
	for _, s := range []string{"", "é ü \u20ac", "quote \" and \\", "bad \xff byte", strings.Repeat("x", 300)} {
		p.text(s)
		p.item()
	}
	for i := range 600 { // more than a short number of the memo
		p.word(string(rune('a' + i%300)))
		p.item()
	}
	p.endList()
	p.key("pair")
	p.pair(0, 1000)
	p.key("yes")
	p.bool(true)
	p.key("no")
	p.bool(false)
	p.key("empty")
	p.beginDict()
	p.endDict()
	p.key("shared")
	p.beginList()
	for range 2 {
		p.once("list", func() {
			p.beginList()
			p.int(5)
			p.item()
			p.endList()
		})
		p.item()
	}
	p.endList()
	p.endDict()
	if err := p.end(); err != nil {
		t.Fatal(err)
	}
	python(t, file.Bytes(), "-c", `
import pickle, sys
v = pickle.loads(sys.stdin.buffer.read())
assert v["numbers"] == [0, 1, 255, 256, 65535, 65536, 2**31-1, 2**31, -1, -2**31, -2**31-1, 2**63-1, -2**63, 7, 2**47, 2**63-1, 2**63, 2**64-1], v["numbers"]
assert v["texts"][:5] == ["", "é ü €", "quote \" and \\", "bad \ufffd byte", "x" * 300], v["texts"][:5]
assert v["texts"][5:] == [chr(ord("a") + i % 300) for i in range(600)]
assert (v["pair"], v["yes"], v["no"], v["empty"], v["shared"]) == ((0, 1000), True, False, {}, [[5], [5]])
assert list(v) == ["numbers", "texts", "pair", "yes", "no", "empty", "shared"]
`)
}
