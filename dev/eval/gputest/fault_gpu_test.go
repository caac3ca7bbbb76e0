package gputest

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// Faults that are planted in processes of their own are named: launch, block and address, and no work behind one is said to be done.
// Where not all can be known, nothing wrong is said.
func TestFaultsAreNamed(t *testing.T) {
	provokes(t, "illegal accesses")
	if dryRun {
		t.Log("the simulated device writes no core dumps")
		return
	}
	gpu(t)
	rounds := scaled(8, 1)
	var mu sync.Mutex
	named, located, whole := map[string]int{}, map[string]int{}, map[string]int{}
	var all sync.WaitGroup
	slots := make(chan struct{}, 2) // with four processes and more the driver lost a dump now and then
	for _, kind := range []string{"read", "write", "atomic", "behind", "never"} {
		for _, blocks := range []int{1, 16} {
			for range rounds {
				slots <- struct{}{}
				all.Go(func() {
					defer func() { <-slots }()
					cmd, cancel := selfCommand(t, nil, fmt.Sprintf("%s=fault:%s:%d", plantVariable, kind, blocks))
					defer cancel()
					output, err := cmd.CombinedOutput()
					_, line, ok := strings.Cut(string(output), faultPrefix)
					var r faultReport
					if err != nil || !ok || json.Unmarshal([]byte(strings.SplitN(line, "\n", 2)[0]), &r) != nil {
						t.Errorf("%s of %d blocks: %v\n%s", kind, blocks, err, output)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					key := fmt.Sprintf("%s of %d blocks", kind, blocks)
					whole[key]++
					if whole[key] == 1 {
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
					right := strings.Contains(r.Text, fmt.Sprintf("at %#x", r.Accessed))
					if right {
						located[key]++
					}
					if wants := kind != "never"; right && wants != (r.Victim == "planted.victim") {
						t.Errorf("%s: the block is %q: %s", key, r.Victim, r.Text)
					}
				})
			}
		}
	}
	all.Wait()
	for key, n := range whole {
		t.Logf("%-20s %d planted, the launch named alone in %d, the address in %d", key, n, named[key], located[key])
	}
}
