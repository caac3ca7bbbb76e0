// Skips reads the JSON events of go test from files and fails if a test was
// skipped that should have run: where every dependency of the tests is meant
// to be there, a skip is a test that has quietly stopped testing.
//
// A test that needs a GPU may be skipped where there is none, unless
// FENCEPOST_REQUIRE_CUDA says that there is: it is the number of GPUs that must
// be found, and a test may need two. With -short a test may leave itself to "make
// check". Such skips are known by their reasons.
// Nothing is printed when all is well.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// permitted are the reasons of skips for want of GPUs, each with the number of
// GPUs that makes it a failure. The first begins the CUDA driver's own error.
var permitted = map[string]int{"no CUDA driver here": 1, "one GPU only": 2}

// leftToCheck is the reason of a skip with -short.
const leftToCheck = "make check runs it"

func main() {
	short := flag.Bool("short", false, "go test had -short")
	flag.Parse()
	gpus, err := strconv.Atoi(cmp.Or(os.Getenv("FENCEPOST_REQUIRE_CUDA"), "0"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "skips: FENCEPOST_REQUIRE_CUDA: say how many GPUs there are:", err)
		os.Exit(2)
	}
	skipped, err := readFiles(flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "skips:", err)
		os.Exit(2)
	}
	if refused := refuse(skipped, gpus, *short); len(refused) > 0 {
		fmt.Fprintln(os.Stderr, "skipped, and must not be:")
		for _, s := range refused {
			fmt.Fprintf(os.Stderr, "  %s %s: %s\n", s.pkg, s.test, s.reason)
		}
		os.Exit(1)
	}
}

// skip is a test that was skipped.
type skip struct{ pkg, test, reason string }

// refuse leaves out the skips that are permitted where there are so many GPUs, and
// those that are with -short.
func refuse(all []skip, gpus int, short bool) []skip {
	var refused []skip
	for _, s := range all {
		if !isPermitted(s, gpus, short) {
			refused = append(refused, s)
		}
	}
	return refused
}

func isPermitted(s skip, gpus int, short bool) bool {
	if short && strings.Contains(s.reason, leftToCheck) {
		return true
	}
	for reason, enough := range permitted {
		if gpus < enough && strings.Contains(s.reason, reason) {
			return true
		}
	}
	return false
}

func readFiles(paths []string) ([]skip, error) {
	var all []skip
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		found, err := read(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, found...)
	}
	return all, nil
}

// event is what is needed of test2json's events.
type event struct{ Action, Package, Test, Output string }

// read lists the skipped tests of one run. The reason is what the test wrote
// before it was skipped.
func read(in io.Reader) ([]skip, error) {
	var found []skip
	output := map[[2]string]string{}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) == 0 && err == io.EOF {
			return found, nil
		}
		if err != nil && err != io.EOF {
			return nil, err
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("not an event of go test -json: %w", err)
		}
		if e.Test == "" {
			continue
		}
		key := [2]string{e.Package, e.Test}
		switch e.Action {
		case "output":
			output[key] += written(e.Output)
		case "pass", "fail":
			delete(output, key)
		case "skip":
			found = append(found, skip{e.Package, e.Test, strings.Join(strings.Fields(output[key]), " ")})
			delete(output, key)
		}
	}
}

// written is the test's own output, without the frame of go test.
func written(line string) string {
	text := strings.TrimSpace(line)
	if strings.HasPrefix(text, "=== ") || strings.HasPrefix(text, "--- ") {
		return ""
	}
	return text + " "
}
