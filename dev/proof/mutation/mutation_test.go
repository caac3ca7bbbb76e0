package mutation

import (
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// mutants renders a function with all of its mutants, and returns what they are.
func mutants(t *testing.T, source string) (text string, names []string) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	r := &rewriter{source: []byte(source), set: set, add: func(_, operator, text string) int {
		names = append(names, operator+": "+text)
		return len(names)
	}}
	for _, d := range file.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			r.body(fn)
		}
	}
	var out strings.Builder
	if err := format.Node(&out, set, file); err != nil {
		t.Fatal(err)
	}
	if _, err := parser.ParseFile(set, "", out.String(), 0); err != nil {
		t.Errorf("%v:\n%s", err, &out)
	}
	return out.String(), names
}

func TestOperatorsChangeWhatTheySay(t *testing.T) {
	for source, want := range map[string]string{
		"if a && !b { c() }":                       "taken to fail: a && !b, taken to hold: a, taken to hold: !b, dropped: c()",
		"if a || !b { c() }":                       "taken to hold: a || !b, taken to fail: a, taken to fail: !b, dropped: c()",
		"if (a || b) && p == nil { c() }":          "taken to hold: a || b, taken to fail: a, taken to fail: b, taken to fail: (a || b) && p == nil, dropped: c()",
		"x.Lock()\ndefer x.Unlock()\nc()":          "dropped: c()",
		"if err != nil { return }":                 "",
		"if n > 0 && x[n-1] { c() }":               "taken to fail: n > 0 && x[n-1], taken to hold: x[n-1], dropped: c()",
		"if err := c(); err != nil { return }":     "dropped: if err := c(); err != nil { return }",
		"for _, x := range y { c(x) }":             "dropped: c(x), an element skipped: for _, x := range y { c(x) }",
		"if p.seq < q.seq { c() }":                 "taken to fail: p.seq < q.seq, taken to hold: p.seq < q.seq, off by one: p.seq < q.seq, dropped: c()",
		"if p.seq >= q.seq { c() }":                "taken to fail: p.seq >= q.seq, taken to hold: p.seq >= q.seq, off by one: p.seq >= q.seq, dropped: c()",
		"n := 1\nn++":                              "dropped: n++, made twice: n++",
		"p.seq = 1":                                "dropped: p.seq = 1, one too small: p.seq = 1",
		"s.counts.Waits.Add(1)":                    "",
		"f = func() bool { return a }":             "dropped: f = func() bool { return a }, taken to fail: a, taken to hold: a",
		"switch { case a == b: c() }":              "taken to fail: a == b, taken to hold: a == b, dropped: c()",
		"if mutation.At(7) { c() } else { c() }":   "",
		"switch x := y(); { case x == nil: c(x) }": "dropped: c(x)",
	} {
		if _, names := mutants(t, "package p\nfunc f() {\n"+source+"\n}\n"); strings.Join(names, ", ") != want {
			t.Errorf("%s has\n%q, want\n%q", source, names, want)
		}
	}
}

func TestTheOrderOfStatementsIsSwappedWhereItCounts(t *testing.T) {
	text, names := mutants(t, "package p\nfunc (s *Stream) place() {\na()\nb()\nc = 1\n}\n")
	if len(names) != 4 || names[0] != "swapped: b()" || strings.Count(text, "b()") != 2 {
		t.Errorf("%q:\n%s", names, text)
	}
}

func TestATextThatIsNotThereOnceIsAnError(t *testing.T) {
	source := "package p\n\nfunc (x *t) first() {\n\tc()\n\td()\n\tc()\n}\n"
	for want, mutant := range map[string]textual{
		"2 times":     {fn: "t.first", old: "c()", new: guard},
		"0 times":     {fn: "t.first", old: "e()", new: guard},
		"no function": {fn: "t.second", old: "d()", new: guard},
		"must say":    {fn: "t.first", old: "d()", new: "e()"},
	} {
		m := &mutator{seen: map[string]int{}}
		if _, err := m.textual([]byte(source), mutant); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// TestTheOverlayFitsTheCode is the quick part of the mutation test: the tables name what is there.
func TestTheOverlayFitsTheCode(t *testing.T) {
	replaced, err := WriteOverlay(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(replaced); err != nil {
		t.Error(err)
	}
}
