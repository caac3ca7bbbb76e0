package history

import (
	"bytes"
	"fmt"
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
	p.write(dict{
		{"numbers", list(func(add func(any)) {
			for _, n := range []int64{0, 1, 255, 256, 65535, 65536, 1<<31 - 1, 1 << 31, -1, -1 << 31, -1<<31 - 1, math.MaxInt64, math.MinInt64} {
				add(n)
			}
			for _, n := range []uint64{7, 1 << 47, math.MaxInt64, 1 << 63, math.MaxUint64} {
				add(n)
			}
		})},
		{"texts", list(func(add func(any)) {
			for _, s := range []text{"", "é ü \u20ac", "quote \" and \\", "bad \xff byte", text(strings.Repeat("x", 300))} {
				add(s)
			}
			for i := range 600 { // more than a short number of the memo
				add(word(rune('a' + i%300)))
			}
		})},
		{"pair", pair{0, 1000}},
		{"yes", true},
		{"no", false},
		{"empty", dict{}},
		{"shared", list(func(add func(any)) {
			for range 2 {
				add(shared{"list", func() any { return list(func(add func(any)) { add(int64(5)) }) }})
			}
		})},
	})
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

func TestAValueWithoutAFormIsAnError(t *testing.T) {
	for _, inside := range []any{"a string", int32(5), nil, 1.5} {
		var file bytes.Buffer
		p := newPickler(&file)
		p.write(dict{{"number", 1}, {"strange", inside}, {"list", list(func(add func(any)) { add(inside) })}})
		if err := p.end(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%T", inside)) {
			t.Errorf("%T: got %v, want an error that names the type", inside, err)
		}
	}
}
