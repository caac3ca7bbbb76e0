package mutation

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const source = `package cuda

import "fmt"

type t struct{}

func (x *t) first() { fmt.Println("a"); fmt.Println("b") }

type table[K, V any] struct{}

func (x *table[K, V]) first() { fmt.Println("a") }

type list[V any] struct{}

func (x list[V]) first() { fmt.Println("a") }

func first() { fmt.Println("a") }
`

func TestASiteIsChangedInItsFunctionAlone(t *testing.T) {
	sites := []numbered{{Site{Func: "t.first", Old: `fmt.Println("a")`, New: `if !mutated() { fmt.Println("a") }`}, 7}}
	out, err := apply([]byte(source), sites, "example.com/toggle")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`import mutation "example.com/toggle"`, "if !mutation.At(7) {\n\t\tfmt.Println(\"a\")", "func first() { fmt.Println(\"a\") }"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%s is not in\n%s", want, out)
		}
	}
}

func TestASiteMayBeInAMethodOfAGenericType(t *testing.T) {
	for i, of := range []string{"table.first", "list.first"} {
		out, err := apply([]byte(source), []numbered{{Site{Func: of, Old: `fmt.Println("a")`, New: `if !mutated() { fmt.Println("a") }`}, i}}, "example.com/toggle")
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(out), "mutation.At("); n != 1 {
			t.Errorf("%s: %d changes in\n%s", of, n, out)
		}
	}
}

func TestATextThatIsNotThereOnceIsAnError(t *testing.T) {
	one := Site{Name: "n", Func: "t.first", Old: `fmt.Println("b")`, New: "mutated()"}
	for want, change := range map[string]func(*Site){
		"2 times":         func(s *Site) { s.Old = "fmt.Println(" },
		"0 times":         func(s *Site) { s.Old = "fmt.Print()" },
		"no function":     func(s *Site) { s.Func = "t.second" },
		"must say":        func(s *Site) { s.New = "fmt.Println()" },
		"change the same": func(s *Site) { s.Old = `"b"` },
	} {
		other := one
		change(&other)
		_, err := apply([]byte(source), []numbered{{one, 0}, {other, 1}}, "toggle")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

func TestSitesAreDescribed(t *testing.T) {
	if err := check(Sites()); err != nil {
		t.Error(err)
	}
	for _, s := range Sites() {
		if !strings.Contains(s.Name, ": ") || len(strings.Fields(s.Wrong)) < 5 || s.Count() < 1 || s.Count() > Executions {
			t.Errorf("site %q with %d executions, %q", s.Name, s.Count(), s.Wrong)
		}
	}
}

// TestTheOverlayFitsTheCode is the quick part of the mutation test: the table
// must be adapted to what is changed in the driven packages.
func TestTheOverlayFitsTheCode(t *testing.T) {
	scratch := t.TempDir()
	overlay, err := WriteOverlay(filepath.Join("..", "..", ".."), scratch)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(overlay); err != nil {
		t.Error(err)
	}
}
