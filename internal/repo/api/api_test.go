package api

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/repo/lint"
)

// TestTheListingIsCurrent compares what is checked in with what the module exports.
func TestTheListingIsCurrent(t *testing.T) {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	root, err := lint.Root(dir)
	if err != nil {
		t.Fatal(err)
	}
	now, err := List(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range []string{".", "core", "cuda", "telemetry"} {
		if len(now[pkg]) < 10 {
			t.Errorf("%s exports %q only", pkg, now[pkg])
		}
	}
	changes, err := now.Changes(filepath.Join(root, filepath.FromSlash(Folder)))
	if err != nil {
		t.Fatal(err)
	}
	if len(changes) > 0 {
		t.Errorf("what the module exports has changed; if it is meant: go run ./internal/repo/api/write\n%s", strings.Join(changes, "\n"))
	}
}

const source = `package p

import "context"

const (
	A T = iota + 1
	B
	c
)

const D = "d"

var V, w = 1, 2
var E error

type T uint8

func (T) String() string { return "" }
func (t *T) hidden()     {}

type hidden struct{}

func (hidden) Exported()              {}
func (*hidden) Get(string) (_, _ int) { return }

type S[K comparable, V any] struct {
	context.Context
	*hidden
	A, B int
	c    int
	F    func(ctx context.Context, n ...int) (err error)
}

func (s *S[K, V]) Get(k K) (V, bool) { panic("") }

type I interface {
	context.Context
	M(x int) error
	m()
}

type Alias = S[int, string]

func F[X any](x X, y map[string][]*T) (*S[int, X], error) { return nil, nil }
func g()                                                  {}
`

var sourceLines = []string{
	"const A T = iota + 1",
	"const B T",
	`const D = "d"`,
	"field S.A int",
	"field S.B int",
	"field S.F func(ctx context.Context, n ...int) (err error)",
	"field S: context.Context",
	"func F[X any](x X, y map[string][]*T) (*S[int, X], error)",
	"method (*S[K, V]) Get(k K) (V, bool)",
	"method (S[K, V]) Exported()",
	"method (T) String() string",
	"method I.M(x int) error",
	"method I.m()",
	"method I: context.Context",
	"type Alias = S[int, string]",
	"type I interface",
	"type S[K comparable, V any] struct",
	"type T uint8",
	"var E error",
	"var V",
}

// tree writes files, by path, and returns their folder.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestWhatOthersCanWriteIsListed(t *testing.T) {
	root := tree(t, map[string]string{
		"go.mod":            "module m\n",
		"p/p.go":            source,
		"p/p_test.go":       "package p\n\nfunc InATest() {}\n",
		"q/q_linux.go":      "package q\n\nfunc Q() {}\n",
		"q/q_darwin.go":     "package q\n\nfunc Q() {}\nfunc OnDarwin() {}\n",
		"internal/i/i.go":   "package i\n\nfunc I() {}\n",
		"p/internal/i/i.go": "package i\n\nfunc I() {}\n",
		"p/testdata/i.go":   "package i\n\nfunc I() {}\n",
		".hidden/i.go":      "package i\n\nfunc I() {}\n",
		"cmd/m/main.go":     "package main\n\nfunc I() {}\n",
		"other/go.mod":      "module o\n",
		"other/o.go":        "package o\n\nfunc O() {}\n",
		"nothing/n.go":      "package n\n",
	})
	got, err := List(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || !slices.Equal(got["q"], []string{"func OnDarwin()", "func Q()"}) {
		t.Errorf("got %q", got)
	}
	if !slices.Equal(got["p"], sourceLines) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got["p"], "\n"), strings.Join(sourceLines, "\n"))
	}
}

func TestChangesAreShown(t *testing.T) {
	dir := t.TempDir()
	before := Listing{".": {"func A()", "func B()"}, "gone/x": {"func X()"}}
	if err := before.Write(dir); err != nil {
		t.Fatal(err)
	}
	if changes, err := before.Changes(dir); err != nil || len(changes) > 0 {
		t.Errorf("of itself: %q, %v", changes, err)
	}
	now := Listing{".": {"func A(x int)", "func B()"}, "fresh": {"var V"}}
	changes, err := now.Changes(dir)
	want := []string{"- fencepost: func A()", "+ fencepost: func A(x int)", "+ fresh: var V", "- gone.x: func X()"}
	if err != nil || !slices.Equal(changes, want) {
		t.Errorf("got %q, %v, want %q", changes, err, want)
	}
	if err := now.Write(dir); err != nil {
		t.Fatal(err)
	}
	if changes, err := now.Changes(dir); err != nil || len(changes) > 0 {
		t.Errorf("after it was written: %q, %v", changes, err)
	}
}
