// Skips reads the JSON events of go test from files and prints how many tests were skipped, a
// line for each reason. With FENCEPOST_REQUIRE=1 it fails if one was skipped that should have
// run: where every dependency of the tests is meant to be there, a skip is a test that has
// quietly stopped testing.
//
// A test that needs a GPU may be skipped where there is none: FENCEPOST_REQUIRE_CUDA is the
// number of GPUs that must be there. With -short a test may leave itself to "make proof".
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// permitted are the reasons of skips that are no failure below so many GPUs. The first begins
// the CUDA driver's own error.
var permitted = map[string]int{"no CUDA driver here": 1, "one GPU only": 2, "make proof runs it": 1 << 30}

func main() {
	code, err := run(os.Args[1:], os.Stdout, os.Getenv)
	if err != nil {
		fmt.Fprintln(os.Stderr, "skips:", err)
		code = 2
	}
	os.Exit(code)
}

func run(files []string, out io.Writer, env func(string) string) (code int, err error) {
	gpus, err := strconv.Atoi(cmp.Or(env("FENCEPOST_REQUIRE_CUDA"), "0"))
	if err != nil {
		return 0, fmt.Errorf("FENCEPOST_REQUIRE_CUDA: say how many GPUs there are: %w", err)
	}
	reasons := map[string][]string{} // to the tests
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return 0, err
		}
		err = read(f, reasons)
		_ = f.Close()
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		tests := reasons[reason]
		fmt.Fprintf(out, "SKIPPED %d: %s\n", len(tests), reason)
		if env("FENCEPOST_REQUIRE") == "1" && !isPermitted(reason, gpus) {
			fmt.Fprintf(out, "  and must not be: %s\n", strings.Join(tests, ", "))
			code = 1
		}
	}
	return code, nil
}

func isPermitted(reason string, gpus int) bool {
	for text, enough := range permitted {
		if gpus < enough && strings.Contains(reason, text) {
			return true
		}
	}
	return false
}

// frame is what go test writes around a test's own output, and place where a test said it.
var (
	frame = regexp.MustCompile(`^\s*(===|---) `)
	place = regexp.MustCompile(`^\s*\w+\.go:\d+: `)
)

// read adds the skipped tests of one run to their reasons: what a test wrote last before it
// was skipped, shortened at the first colon behind "no CUDA driver here".
func read(in io.Reader, reasons map[string][]string) error {
	last := map[[2]string]string{}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) == 0 && err == io.EOF {
			return nil
		}
		if err != nil && err != io.EOF {
			return err
		}
		var e struct{ Action, Package, Test, Output string }
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("not an event of go test -json: %w", err)
		}
		key := [2]string{e.Package, e.Test}
		switch e.Action {
		case "output":
			if text := strings.TrimSpace(place.ReplaceAllString(e.Output, "")); text != "" && !frame.MatchString(e.Output) {
				last[key] = text
			}
		case "skip":
			if e.Test != "" {
				reason := last[key]
				if at := strings.Index(reason, "no CUDA driver here"); at >= 0 {
					reason, _, _ = strings.Cut(reason[at:], ":")
				}
				reasons[reason] = append(reasons[reason], e.Package+"."+e.Test)
			}
		}
	}
}
