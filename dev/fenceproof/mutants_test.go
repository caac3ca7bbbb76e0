package fenceproof

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost/dev/proof/mutation"
	"github.com/fencepost-gpu/fencepost/dev/proof/overlay"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

// TestFenceMutants breaks the production code at one step of its fences at a
// time, and demands that the judgement of small and of random programs finds
// something wrong each time. With -v it says of each site by what.
func TestFenceMutants(t *testing.T) {
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
	sites, err := mutation.Sites(root)
	if err != nil {
		t.Fatal(err)
	}
	binary, err := mutation.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	bySite := make([][]mutation.Fate, len(sites))
	for _, f := range fates(t, binary, sites) {
		bySite[f.Site] = append(bySite[f.Site], f)
	}
	killed, unreached := 0, 0
	for i := range sites {
		if killed += judge(t, &sites[i], bySite[i]); len(bySite[i]) == 0 {
			unreached++
		}
	}
	if killed < fewestKilled && !t.Failed() {
		t.Errorf("%d mutants were killed, and at least %d must be", killed, fewestKilled)
	}
	fmt.Printf("mutants: killed=%d sites=%d unreached=%d\n", killed, len(sites), unreached)
}

// fates runs the program, two parts at once.
func fates(t *testing.T, binary string, sites []mutation.Site) []mutation.Fate {
	const parts = 2
	var equivalent []string
	for i := range sites {
		if sites[i].Equivalent != "" {
			equivalent = append(equivalent, strconv.Itoa(i))
		}
	}
	var (
		wg  sync.WaitGroup
		mu  sync.Mutex
		all []mutation.Fate
	)
	for part := range parts {
		wg.Go(func() {
			some, err := fatesOf(t.Context(), binary, "-equivalent", strings.Join(equivalent, ","), "-part", strconv.Itoa(part), "-parts", strconv.Itoa(parts))
			mu.Lock()
			defer mu.Unlock()
			all = append(all, some...)
			expect.Success(t, err)
		})
	}
	wg.Wait()
	return all
}

// fatesOf runs a part of the mutants. One that takes the process down, by a panic in another
// goroutine or a deadlock, is killed too, and another process goes on behind its site.
func fatesOf(ctx context.Context, binary string, args ...string) (all []mutation.Fate, err error) {
	for from := 0; ; {
		cmd := exec.CommandContext(ctx, binary, append(args, "-from", strconv.Itoa(from))...)
		var progress bytes.Buffer
		cmd.Stderr = &progress
		out, runErr := cmd.Output()
		for lines := json.NewDecoder(bytes.NewReader(out)); err == nil; {
			var f mutation.Fate
			if err = lines.Decode(&f); err == nil {
				all = append(all, f)
			}
		}
		if err == io.EOF {
			err = nil
		}
		if runErr == nil || err != nil {
			return all, err
		}
		crashed := crash.FindStringSubmatch(progress.String())
		if crashed == nil {
			return all, fmt.Errorf("%w\n%s", runErr, progress.Bytes()[max(0, progress.Len()-4000):])
		}
		f := mutation.Fate{Killed: true, By: []string{"crash"}, Runs: 1, Reaching: 1, Report: progress.String()}
		f.Site, _ = strconv.Atoi(crashed[1])
		f.Execution, _ = strconv.Atoi(crashed[2])
		all, from = append(all, f), f.Site+1
	}
}

// crash is what a process says of the mutant that has taken it down.
var crash = regexp.MustCompile(`site (\d+), execution (\d+)(?:, again)?\n(?:panic|fatal error): `)

// judge demands that a site is killed at one execution or another, and one that is said to be
// equivalent never. A site that no trial executes does not count.
func judge(t *testing.T, site *mutation.Site, fates []mutation.Fate) (killed int) {
	var executions, survive []string
	by := map[string]int{}
	runs := 0
	for _, f := range fates {
		runs += f.Runs
		switch {
		case f.Killed && site.Equivalent != "":
			t.Errorf("%s, execution %d, is excused because %q, and was killed:\n%s", site.Name(), f.Execution, site.Equivalent, f.Report)
		case f.Killed:
			killed++
			executions = append(executions, strconv.Itoa(f.Execution))
			for _, reason := range f.By {
				by[reason]++
			}
		default:
			survive = append(survive, strconv.Itoa(f.Execution))
		}
	}
	if killed == 0 && len(fates) > 0 && site.Equivalent == "" {
		t.Errorf("%s survives %d runs: if nothing can show that it is wrong, say why in package mutation", site.Name(), runs)
	}
	var reasons []string
	for _, reason := range slices.Sorted(maps.Keys(by)) {
		reasons = append(reasons, fmt.Sprintf("%s %d", reason, by[reason]))
	}
	t.Logf("%s: killed %s by %s; survives %s", site.Name(), strings.Join(executions, ","), strings.Join(reasons, ", "), strings.Join(survive, ","))
	return killed
}

// fewestKilled is a floor under the mutants that are killed.
const fewestKilled = 2000
