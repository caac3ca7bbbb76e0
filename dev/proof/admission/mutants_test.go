package admission_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/dev/proof/overlay"
)

// mutants break one rule each, and the exploration says how.
var mutants = []struct {
	rule, file, from, to, verdict string
}{
	{"what is given is not given again", "ledger.go", "room := l.limit - min(l.limit, l.given)", "room := l.limit", "overcommit"},
	{"what a job is let in with counts", "ledger.go", "l.given += bytes\n", "", "books"},
	{"the first goes before all that fit", "ledger.go", "if l.order.Bytes(place) > room {", "if other, may := l.order.Pass(room); may {\n			place = other\n		} else if l.order.Bytes(place) > room {", "order"},
	{"one that leaves lets the next in", "ledger.go", "	l.next()\n	return 0\n", "	return 0\n", "deadlock"},
	{"one that gives up lets the next in", "ledger.go", "	l.order.Leave(place)\n	l.next()\n}", "	l.order.Leave(place)\n}", "asleep"},
	{"one that comes or learns is looked at", "ledger.go", "	l.fit(place)\n	l.next()\n}", "	l.fit(place)\n}", "deadlock"},
	{"a higher limit lets the next in", "ledger.go", "place, ok = next, more\n	}\n	l.next()\n", "place, ok = next, more\n	}\n", "asleep"},
	{"all who fit are let in, not one", "ledger.go", "l.given += bytes\n		l.decide(place, bytes)\n", "l.given += bytes\n		l.decide(place, bytes)\n		return\n", "asleep"},
	{"nobody waits for more than there is", "ledger.go", "l.order.SetBytes(place, min(w.bytes, l.limit))", "l.order.SetBytes(place, w.bytes)", "deadlock"},
	{"a lower limit turns those away who never fit", "ledger.go", "		l.fit(place)\n		place, ok", "		place, ok", "deadlock"},
	{"all of them", "ledger.go", "place, ok = next, more", "place, ok = next, more && false", "deadlock"},
	{"only those who never fit are refused", "ledger.go", "w.least > l.limit {", "w.bytes > l.limit {", "refusal"},
	{"those who never fit are refused", "ledger.go", "w.least > l.limit {", "w.least > 2*l.limit {", "deadlock"},
	{"nobody is inside with nothing", "ledger.go", "bytes: max(1, least, bytes)}", "bytes: max(least, bytes)}", "refusal"},
	{"growth counts, whether there was room or not", "ledger.go", "	l.given = l.given - before + now\n	if now > before && l.given > l.limit {\n", "	if now > before && l.given-before+now > l.limit {\n		*g = Grant{}\n", "books"},
	{"a job is told what was not there", "ledger.go", "return min(now-before, l.given-l.limit)", "return 0", "books"},
	{"what is used is not given back", "ledger.go", "return max(g.Reserved, g.Used)", "return g.Reserved", "books"},
	{"one that shrinks gives back", "ledger.go", "l.given = l.given - before + now", "l.given = max(l.given, l.given-before+now)", "books"},
	{"the first is passed by so many only", "order.go", ".passed >= o.Passes {", ".passed >= o.Passes+1 {", "overtaken"},
	{"each one that passes counts", "order.go", "first.passed++\n", "", "overtaken"},
	{"who passes fits", "order.go", "if other.bytes <= room {", "if other.bytes <= room+1 {", "overcommit"},
	{"who does not fit keeps nobody behind it from passing", "order.go", "at = other.next\n", "break\n", "asleep"},
	{"the last place is the last", "order.go", "o.places[o.last-1].next = i + 1", "o.places[o.last-1].next, o.places[i].before = i+1, 0", "books"},
	{"who leaves from the middle leaves the others", "order.go", "o.places[p.before-1].next = p.next", "o.places[p.before-1].next = 0", "books"},
}

func TestEachRuleOfTheQueueIsNeeded(t *testing.T) {
	if testing.Short() {
		t.Skip("the go command builds what it breaks: make proof runs it")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command here")
	}
	root, err := overlay.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		t.Run(m.rule, func(t *testing.T) {
			path := filepath.Join("internal", "line", m.file)
			text, err := os.ReadFile(filepath.Join(root, path))
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(text), m.from); n != 1 {
				t.Fatalf("the code has %q %d times", m.from, n)
			}
			replaced, err := overlay.Files{path: strings.Replace(string(text), m.from, m.to, 1)}.Write(root, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), "go", "test", "-overlay", replaced, "-short", "-timeout", "2m", "-run", "^TestNoStateOfTheQueueIsADeadlock$", ".").CombinedOutput()
			if err == nil || !strings.Contains(string(out), ": "+m.verdict+": ") {
				t.Errorf("it is not noticed as %s: %v\n%s", m.verdict, err, out)
			}
		})
	}
}
