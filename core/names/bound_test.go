package names_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
)

func TestANameWithinTheBoundIsLeftAlone(t *testing.T) {
	for _, name := range []string{"", "sort.keys", "模型", "a\x00b", strings.Repeat("x", names.Max)} {
		if got := names.Bound(name); got != name {
			t.Errorf("%q became %q", name, got)
		}
	}
	name := strings.Repeat("x", names.Max)
	if n := testing.AllocsPerRun(100, func() { _ = core.Tag(names.Bound(name)).OrUntagged() }); n != 0 {
		t.Errorf("a name within the bound costs %v allocations", n)
	}
}

func TestALongNameIsCutAtARuneAndMarked(t *testing.T) {
	for _, c := range []struct{ letter, cut string }{
		{"x", strings.Repeat("x", 245)}, {"é", strings.Repeat("é", 122)}, {"語", strings.Repeat("語", 81)}, {"🚧", strings.Repeat("🚧", 61)},
		{"\xff", "\uFFFD"}, {"\x80", "\uFFFD"},
	} {
		long := strings.Repeat(c.letter, 70_000)
		got := names.Bound(long)
		kept, mark, ok := strings.Cut(got, "…")
		if kept != c.cut || len(mark) != 8 || !ok || len(got) > names.Max || !utf8.ValidString(got) {
			t.Errorf("of %q: %q", c.letter, got)
		}
		if again := names.Bound(got); again != got {
			t.Errorf("what was cut is cut again: %q, then %q", got, again)
		}
		if other := names.Bound(long + "2"); other == got {
			t.Errorf("two names with one beginning became one: %q", got)
		}
		if tag := core.Tag(long).OrUntagged(); tag != core.Tag(got) {
			t.Errorf("as a tag it is %q", tag)
		}
	}
}

func TestNamesThatAreNoUTF8AreMadeValidAndStayApart(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"\xff", "\xfe", "\xff\xfe", "tenant-\xe9", "tenant-\xe8", "tenant-\uFFFD", "模型"[:4],
		strings.Repeat("x", names.Max-1) + "\xff",
		strings.Repeat("\xff", names.Max), "\xff" + strings.Repeat("語", 80)} {
		got := names.Bound(name)
		if !utf8.ValidString(got) || len(got) > names.Max || names.Bound(got) != got || seen[got] != "" {
			t.Errorf("%q became %q, as did %q", name, got, seen[got])
		}
		if tag := core.Tag(name).OrUntagged(); tag != core.Tag(got) {
			t.Errorf("as a tag %q is %q", name, tag)
		}
		seen[got] = name
		r := core.Request{Bytes: 1, Tag: core.Tag(name)}
		if err := r.Normalize("test"); err != nil || r.Tag != core.Tag(got) {
			t.Errorf("in a request %q is %q: %v", name, r.Tag, err)
		}
	}
}

func FuzzANameIsBoundedOnceAndForAll(f *testing.F) {
	for _, seed := range []string{"", "a", "\xff", "語", "…00000000", "a\xe8\xaa"} {
		f.Add(seed, 300)
	}
	f.Fuzz(func(t *testing.T, part string, times int) {
		name := strings.Repeat(part, min(max(times, 0), 1000))
		got := names.Bound(name)
		if len(got) > names.Max || names.Bound(got) != got || !utf8.ValidString(got) ||
			(got == name) != (len(name) <= names.Max && utf8.ValidString(name)) {
			t.Errorf("%q of %d bytes became %q", name, len(name), got)
		}
	})
}
