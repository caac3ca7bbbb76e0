package main

import (
	"os"
	"path/filepath"
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
{"Action":"output","Package":"p","Test":"TestB2","Output":"    b_test.go:9: no CUDA driver here: another text\n"}
{"Action":"skip","Package":"p","Test":"TestB2"}
{"Action":"pass","Package":"p","Test":"TestC"}
{"Action":"output","Package":"p","Test":"TestD","Output":"    d_test.go:3: one GPU only: this test needs two\n"}
{"Action":"skip","Package":"p","Test":"TestD"}
{"Action":"output","Package":"p","Test":"TestE","Output":"    e_test.go:3: it takes minutes: make proof runs it\n"}
{"Action":"skip","Package":"p","Test":"TestE"}
{"Action":"skip","Package":"empty"}
`

func TestSkipsAreSummedUpAndJudged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.json")
	if err := os.WriteFile(path, []byte(events), 0o600); err != nil {
		t.Fatal(err)
	}
	const sums = "SKIPPED 1: it takes minutes: make proof runs it\nSKIPPED 2: no CUDA driver here\nSKIPPED 1: no promtool\nSKIPPED 1: one GPU only: this test needs two\n"
	for name, c := range map[string]struct {
		env     map[string]string
		refused []string
		code    int
	}{
		"not required":        {nil, nil, 0},
		"required":            {map[string]string{"FENCEPOST_REQUIRE": "1"}, []string{"p.TestA"}, 1},
		"required, with GPUs": {map[string]string{"FENCEPOST_REQUIRE": "1", "FENCEPOST_REQUIRE_CUDA": "2"}, []string{"p.TestB, p.TestB2", "p.TestA", "p.TestD"}, 1},
	} {
		var out strings.Builder
		code, err := run([]string{path}, &out, func(name string) string { return c.env[name] })
		var got []string
		plain := ""
		for line := range strings.Lines(out.String()) {
			if tests, found := strings.CutPrefix(line, "  and must not be: "); found {
				got = append(got, strings.TrimSpace(tests))
			} else {
				plain += line
			}
		}
		if err != nil || code != c.code || plain != sums || strings.Join(got, "|") != strings.Join(c.refused, "|") {
			t.Errorf("%s: exit %d, %v\n%s", name, code, err, out.String())
		}
	}
}

func TestWhatIsNoEventIsAnError(t *testing.T) {
	if err := read(strings.NewReader("ok  \tp\t0.1s\n"), nil); err == nil {
		t.Error("no error")
	}
	if _, err := run([]string{filepath.Join(t.TempDir(), "missing")}, os.Stderr, os.Getenv); err == nil {
		t.Error("no error for a missing file")
	}
}
