package main

import (
	"cmp"
	"go/ast"
	"maps"
	"slices"
)

// use says that the first node mentions the second, one of its methods or fields.
type use struct{ from, to node }

// uses are those between different nodes, and in how many declarations of the
// first each is.
type uses map[use]int

func findUses(pkgs []*pkg, o *owners) uses {
	found := uses{}
	for _, p := range pkgs {
		for _, d := range o.declarations(p) {
			here := map[use]bool{}
			ast.Inspect(d.Node, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					if to, ok := o.of(p.info.Uses[id]); ok && to != d.owner {
						here[use{d.owner, to}] = true
					}
				}
				return true
			})
			for u := range here {
				found[u]++
			}
		}
	}
	return found
}

// against are the uses that run against the order of the layers, sorted: from a
// package to one of a layer further out, and within a package from a type to one
// that comes before it, in an order in which as few do so as [order] finds.
func (us uses) against() []use {
	place := us.places()
	var found []use
	for u := range us {
		if runsBack(u, place) {
			found = append(found, u)
		}
	}
	slices.SortFunc(found, compareUses)
	return found
}

// places are those of the nodes in the order of their package.
func (us uses) places() map[node]int {
	place := map[node]int{}
	for _, nodes := range us.byFolder() {
		for i, n := range order(nodes, us) {
			place[n] = i
		}
	}
	return place
}

func runsBack(u use, place map[node]int) bool {
	if u.from.folder == u.to.folder {
		return place[u.from] > place[u.to]
	}
	return rank(u.from.folder) > rank(u.to.folder)
}

// inCycles counts the uses within a package that are part of a cycle.
func (us uses) inCycles(folder string) int {
	count := 0
	for _, group := range components(us.byFolder()[folder], us) {
		member := map[node]bool{}
		for _, n := range group {
			member[n] = true
		}
		for u := range us {
			if member[u.from] && member[u.to] {
				count++
			}
		}
	}
	return count
}

// byFolder are the nodes that use or are used within their package, sorted.
func (us uses) byFolder() map[string][]node {
	seen := map[node]bool{}
	for u := range us {
		if u.from.folder == u.to.folder {
			seen[u.from], seen[u.to] = true, true
		}
	}
	all := map[string][]node{}
	for _, n := range slices.SortedFunc(maps.Keys(seen), compareNodes) {
		all[n.folder] = append(all[n.folder], n)
	}
	return all
}

func compareNodes(a, b node) int {
	return cmp.Or(outsideIn(a.folder, b.folder), cmp.Compare(a.name, b.name))
}

func compareUses(a, b use) int { return cmp.Or(compareNodes(a.from, b.from), compareNodes(a.to, b.to)) }
