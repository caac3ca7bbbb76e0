package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const events = `{"Action":"start","Package":"p"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: no promtool\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"--- SKIP: TestA (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:3: no CUDA driver here: libcuda.so.1\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"pass","Package":"p","Test":"TestC"}
{"Action":"output","Package":"p","Test":"TestD","Output":"    d_test.go:3: one GPU only: this test needs two\n"}
{"Action":"skip","Package":"p","Test":"TestD"}
{"Action":"output","Package":"p","Test":"TestE","Output":"    e_test.go:3: it takes minutes: make check runs it\n"}
{"Action":"skip","Package":"p","Test":"TestE"}
{"Action":"skip","Package":"empty"}
`

func TestReadFindsSkippedTestsAndTheirReasons(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.json")
	if err := os.WriteFile(path, []byte(events), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readFiles([]string{path})
	want := []skip{
		{"p", "TestA", "a_test.go:3: no promtool"},
		{"p", "TestB", "b_test.go:3: no CUDA driver here: libcuda.so.1"},
		{"p", "TestD", "d_test.go:3: one GPU only: this test needs two"},
		{"p", "TestE", "e_test.go:3: it takes minutes: make check runs it"},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("got %q, %v", got, err)
	}
	long := want[3:]
	for gpus, want := range [][]skip{want[:1], want[:2], want[:3]} {
		if refused := refuse(got, gpus, true); !slices.Equal(refused, want) {
			t.Errorf("with -short and %d GPUs: %q", gpus, refused)
		}
		if refused := refuse(got, gpus, false); !slices.Equal(refused, slices.Concat(want, long)) {
			t.Errorf("with %d GPUs: %q", gpus, refused)
		}
	}
}

func TestReadRefusesWhatIsNotEvents(t *testing.T) {
	if _, err := read(strings.NewReader("ok  \tp\t0.1s\n")); err == nil {
		t.Error("no error")
	}
	if _, err := readFiles([]string{filepath.Join(t.TempDir(), "missing")}); err == nil {
		t.Error("no error for a missing file")
	}
}
