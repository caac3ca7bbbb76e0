package fenceproof

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost/dev/proof/mutation"
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
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	binary, err := mutation.Build(t.Context(), root, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const parts = 2
	bySite := map[int][]mutation.Fate{}
	for _, f := range fates(t, binary, parts) {
		bySite[f.Site] = append(bySite[f.Site], f)
	}
	killed, mutants, sites := 0, 0, 0
	for i, site := range mutation.Sites() {
		k, n := judge(t, site, bySite[i])
		killed, mutants, sites = killed+k, mutants+n, sites+1
	}
	if (killed != mutation.Mutants || sites != mutation.Places) && !t.Failed() {
		t.Errorf("%d mutants at %d sites were killed, and there were %d at %d", killed, sites, mutation.Mutants, mutation.Places)
	}
	fmt.Printf("mutants: killed=%d of %d sites=%d\n", killed, mutants, sites)
}

// fates runs the program for so many parts at once.
func fates(t *testing.T, binary string, parts int) []mutation.Fate {
	var (
		wg  sync.WaitGroup
		mu  sync.Mutex
		all []mutation.Fate
	)
	for part := range parts {
		wg.Go(func() {
			some, err := fatesOf(t.Context(), binary, part, parts)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, some...)
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	return all
}

func fatesOf(ctx context.Context, binary string, part, parts int) (all []mutation.Fate, err error) {
	cmd := exec.CommandContext(ctx, binary, "-part", strconv.Itoa(part), "-parts", strconv.Itoa(parts))
	var progress bytes.Buffer
	cmd.Stderr = &progress
	out, runErr := cmd.Output()
	for lines := json.NewDecoder(bytes.NewReader(out)); err == nil; {
		var f mutation.Fate
		if err = lines.Decode(&f); err == nil {
			all = append(all, f)
		}
	}
	if runErr != nil {
		tail := progress.Bytes()
		return all, fmt.Errorf("%w\n%s", runErr, tail[max(0, len(tail)-4000):])
	}
	if err == io.EOF {
		err = nil
	}
	return all, err
}

// judge demands that every mutant of a site was killed, but for those that are
// excused.
func judge(t *testing.T, site mutation.Site, fates []mutation.Fate) (killed, mutants int) {
	if len(fates) != site.Count() {
		t.Errorf("%s: %d executions were tried, not %d", site.Name, len(fates), site.Count())
	}
	var executions []string
	by := map[string]int{}
	for _, f := range fates {
		switch reason := site.Equivalent[f.Execution]; {
		case f.Killed && reason != "":
			t.Errorf("%s, execution %d, is excused because %q, and was killed:\n%s", site.Name, f.Execution, reason, f.Report)
		case f.Killed:
			killed++
			executions = append(executions, strconv.Itoa(f.Execution))
			for _, reason := range f.By {
				by[reason]++
			}
		case reason == "":
			t.Errorf("%s, execution %d, survives %d runs, of %d that come so far: %s", site.Name, f.Execution, f.Runs, f.Reaching, site.Wrong)
		default:
			continue
		}
		mutants++
	}
	var reasons []string
	for _, reason := range slices.Sorted(maps.Keys(by)) {
		reasons = append(reasons, fmt.Sprintf("%s %d", reason, by[reason]))
	}
	t.Logf("%s (%s): killed %s by %s: %s", site.Name, site.File, strings.Join(executions, ","), strings.Join(reasons, ", "), site.Wrong)
	return killed, mutants
}
