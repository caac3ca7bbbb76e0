// Program kill throws the switches of the mutants of the driven packages (cuda and what it
// imports), one at a time, and runs programs until package proof finds one in which something
// is wrong. It is built over the mutated packages, see package mutation; built
// without them, no site is ever executed. Its output is a line of JSON for each
// mutant, a [mutation.Fate].
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"github.com/fencepost-gpu/fencepost/dev/proof/mutation"
)

func main() {
	part := flag.Int("part", 0, "which of the parts to do")
	parts := flag.Int("parts", 1, "how many processes share the sites")
	flag.Parse()
	if err := run(*part, *parts); err != nil {
		fmt.Fprintln(os.Stderr, "kill:", err)
		os.Exit(1)
	}
}

// run does every parts-th site.
func run(part, parts int) error {
	suite, err := newSuite()
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	for site, s := range mutation.Sites() {
		if site%parts != part {
			continue
		}
		for k := 1; k <= s.Count(); k++ {
			fmt.Fprintf(os.Stderr, "site %d, execution %d\n", site, k)
			if err := out.Encode(suite.fate(site, k)); err != nil {
				return err
			}
		}
	}
	return nil
}
