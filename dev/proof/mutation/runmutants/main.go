// Program runmutants throws the switches of the mutants of the instrumented packages (cuda and what it
// imports), one at a time, and runs programs until package proof finds one in which something
// is wrong. It is built over the mutated packages, see package mutation; built
// without them, no site is ever executed. Its output is a line of JSON for each
// mutant, a mutation.Fate.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/fencepost-gpu/fencepost/dev/proof/mutation/activemutant"
)

func main() {
	var o options
	flag.Func("equivalent", "the `numbers` of sites that are equivalent, with commas", numbers(&o.equivalent))
	flag.Func("only", "the `numbers` of the only sites to do", numbers(&o.only))
	flag.IntVar(&o.from, "from", 0, "the first site to do")
	flag.IntVar(&o.part, "part", 0, "which of the parts to do")
	flag.IntVar(&o.parts, "parts", 1, "how many processes share the sites")
	flag.Parse()
	if err := run(&o); err != nil {
		fmt.Fprintln(os.Stderr, "runmutants:", err)
		os.Exit(1)
	}
}

type options struct {
	equivalent, only  []int
	from, part, parts int
}

// numbers parses numbers into a list.
func numbers(list *[]int) func(string) error {
	return func(text string) error {
		for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' }) {
			n, err := strconv.Atoi(word)
			if err != nil {
				return err
			}
			*list = append(*list, n)
		}
		return nil
	}
}

// run does every parts-th site from one on.
func run(o *options) error {
	suite, err := newSuite()
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	for site := o.from; site < activemutant.Sites(); site++ {
		if site%o.parts != o.part || o.only != nil && !slices.Contains(o.only, site) {
			continue
		}
		for _, f := range suite.fates(site, slices.Contains(o.equivalent, site)) {
			if err := out.Encode(f.Fate); err != nil {
				return err
			}
		}
	}
	return nil
}
