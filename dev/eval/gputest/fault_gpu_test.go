package gputest

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

var faultRounds = flag.Int("faults", 1, "how many faults TestFaultsAreNamed plants of each kind and size")

var accessed, thread = regexp.MustCompile(`(?:read|wrote) (?:[48]|16) bytes at (0x[0-9a-f]+)`), regexp.MustCompile(`, block \[(\d+) 0 0\], thread \[(\d+) 0 0\]`)

// wrong says what is wrong in a report of an address, or returns "". known is false if it names none.
func (r *faultReport) wrong(kind string, blocks int) (known bool, wrong string) {
	at := accessed.FindStringSubmatch(r.Text)
	if at == nil {
		return false, ""
	}
	got, _ := strconv.ParseUint(at[1], 0, 64)
	switch where := thread.FindStringSubmatch(r.Text); {
	case kind == "library": // of which the code is not known here
		if got < r.Accessed || got >= r.Accessed+uint64(blocks)*256*8 {
			return true, "the address is of another block"
		}
	case where == nil:
		return true, "no thread is named"
	default:
		block, _ := strconv.ParseUint(where[1], 10, 64)
		lane, _ := strconv.ParseUint(where[2], 10, 64)
		want := r.Accessed + 8*(256*block+lane)
		if kind == "atomic" || kind == "last" {
			want = r.Accessed
		}
		if got != want {
			return true, fmt.Sprintf("the address is %#x and not %#x", got, want)
		}
	}
	if (kind == "never") != (r.Victim == "") {
		return true, fmt.Sprintf("the block is %q", r.Victim)
	}
	return true, ""
}

// Faults that are planted in processes of their own are named: launch, block and address, and no work behind one is said to be done.
// Where not all can be known, nothing wrong is said.
func TestFaultsAreNamed(t *testing.T) {
	provokes(t, "illegal accesses")
	if dryRun {
		t.Log("the simulated device writes no core dumps")
		return
	}
	gpu(t)
	var mu sync.Mutex
	planted, named, located, victims := map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	var all sync.WaitGroup
	slots := make(chan struct{}, 2) // with four processes and more the driver lost a dump now and then
	plant := func(kind string, blocks int) {
		defer func() { <-slots }()
		cmd, cancel := selfCommand(t, nil, fmt.Sprintf("%s=fault:%s:%d", plantVariable, kind, blocks))
		defer cancel()
		output, err := cmd.CombinedOutput()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == exitNoLibrary {
			t.Log(kind, errNoLibrary)
			return
		}
		_, line, ok := strings.Cut(string(output), faultPrefix)
		var r faultReport
		if err != nil || !ok || json.Unmarshal([]byte(strings.SplitN(line, "\n", 2)[0]), &r) != nil {
			t.Errorf("%s of %d blocks: %v\n%s", kind, blocks, err, output)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		key := fmt.Sprintf("%s of %d blocks", kind, blocks)
		planted[key]++
		if planted[key] == 1 {
			t.Logf("%s, after %v: %s", key, r.Took, r.Text)
		}
		if r.Armed != "armed" || r.Done || r.Kind != "illegal-access" {
			t.Errorf("%s: armed is %q, done %v, the finding %s: %s", key, r.Armed, r.Done, r.Kind, r.Text)
		}
		if len(r.Suspects) == 1 {
			named[key]++
			if r.Suspects[0] != "planted" {
				t.Errorf("%s: the wrong launch is named: %s", key, r.Text)
			}
		}
		if r.Victim != "" {
			victims[key]++
			if r.Victim != "planted.victim" {
				t.Errorf("%s: the wrong block is named: %s", key, r.Text)
			}
		}
		known, wrong := r.wrong(kind, blocks)
		if known {
			located[key]++
		}
		if wrong != "" {
			t.Errorf("%s: %s: %s", key, wrong, r.Text)
		}
	}
	for round := range *faultRounds {
		for _, kind := range []string{"read", "write", "last", "atomic", "behind", "never", "graph", "library"} {
			sizes := []int{1, 16}
			switch {
			case kind == "library" && round%3 > 0: // whose code takes seconds to dump
				continue
			case kind == "library":
				sizes = []int{16}
			case kind == "read" && round%3 == 0:
				sizes = append(sizes, 1056) // all of an H200
			}
			for _, blocks := range sizes {
				slots <- struct{}{}
				all.Go(func() { plant(kind, blocks) })
			}
		}
	}
	all.Wait()
	for key, n := range planted {
		t.Logf("%-20s %d planted, the launch named alone in %d, the block in %d, the address in %d", key, n, named[key], victims[key], located[key])
	}
}
