package main

import "slices"

// order puts the nodes of a package into an order from users to used. Nodes in a
// cycle with each other stand together, and the groups that cycles make follow one
// another so that no use runs back between them. Within a group the order is
// that of Eades, Lin and Smyth's heuristic for the fewest uses that run back ("A
// fast and effective heuristic for the feedback arc set problem", 1993), in which
// then single nodes are moved for as long as that leaves fewer. Of choices that are
// equally good the first by name is taken, so the result is always the same.
func order(nodes []node, us uses) []node {
	var all []node
	for _, group := range components(nodes, us) {
		all = append(all, improve(eades(group, us), us)...)
	}
	return all
}

// components are the groups of nodes that reach each other, users first (Tarjan's
// algorithm gives them used first).
func components(nodes []node, us uses) [][]node {
	t := tarjan{next: adjacent(nodes, us), index: map[node]int{}, low: map[node]int{}, on: map[node]bool{}}
	for _, n := range nodes {
		if t.index[n] == 0 {
			t.visit(n)
		}
	}
	for _, group := range t.groups {
		slices.SortFunc(group, compareNodes)
	}
	slices.Reverse(t.groups)
	return t.groups
}

// adjacent are the nodes that each uses, among some of one package, sorted.
func adjacent(nodes []node, us uses) map[node][]node {
	member := map[node]bool{}
	for _, n := range nodes {
		member[n] = true
	}
	next := map[node][]node{}
	for u := range us {
		if member[u.from] && member[u.to] {
			next[u.from] = append(next[u.from], u.to)
		}
	}
	for _, to := range next {
		slices.SortFunc(to, compareNodes)
	}
	return next
}

type tarjan struct {
	next       map[node][]node
	index, low map[node]int
	on         map[node]bool
	stack      []node
	groups     [][]node
}

func (t *tarjan) visit(n node) {
	t.index[n] = len(t.index) + 1
	t.low[n] = t.index[n]
	t.stack, t.on[n] = append(t.stack, n), true
	for _, to := range t.next[n] {
		if t.index[to] == 0 {
			t.visit(to)
			t.low[n] = min(t.low[n], t.low[to])
		} else if t.on[to] {
			t.low[n] = min(t.low[n], t.index[to])
		}
	}
	if t.low[n] != t.index[n] {
		return
	}
	at := slices.Index(t.stack, n)
	for _, member := range t.stack[at:] {
		t.on[member] = false
	}
	t.groups = append(t.groups, slices.Clone(t.stack[at:]))
	t.stack = t.stack[:at]
}

// eades takes nodes from the group one by one: to the end what uses nothing that is
// left, to the beginning what nothing that is left uses, and if there is neither,
// to the beginning what uses most and is used least.
func eades(group []node, us uses) []node {
	next := adjacent(group, us)
	left := slices.Clone(group)
	var first, last []node
	for len(left) > 0 {
		out, in := map[node]int{}, map[node]int{}
		for _, n := range left {
			for _, to := range next[n] {
				if slices.Contains(left, to) {
					out[n]++
					in[to]++
				}
			}
		}
		at, toEnd := pick(left, out, in)
		if toEnd {
			last = append(last, left[at])
		} else {
			first = append(first, left[at])
		}
		left = slices.Delete(left, at, at+1)
	}
	slices.Reverse(last)
	return append(first, last...)
}

// pick is the next node that [eades] takes, and whether it takes it to the end.
func pick(left []node, out, in map[node]int) (at int, toEnd bool) {
	if i := slices.IndexFunc(left, func(n node) bool { return out[n] == 0 }); i >= 0 {
		return i, true
	}
	if i := slices.IndexFunc(left, func(n node) bool { return in[n] == 0 }); i >= 0 {
		return i, false
	}
	for i, n := range left {
		if out[n]-in[n] > out[left[at]]-in[left[at]] {
			at = i
		}
	}
	return at, false
}

// improve moves one node at a time to where fewest uses run back, until no such
// move is left.
func improve(nodes []node, us uses) []node {
	for moved := true; moved; {
		moved = false
		for _, n := range slices.SortedFunc(slices.Values(nodes), compareNodes) {
			from := slices.Index(nodes, n)
			if to := bestPlace(nodes, from, us); to != from {
				nodes = slices.Insert(slices.Delete(nodes, from, from+1), to, n)
				moved = true
			}
		}
	}
	return nodes
}

// bestPlace is where the node at from would have the fewest uses that run back; from
// itself if no other place is better.
func bestPlace(nodes []node, from int, us uses) int {
	n := nodes[from]
	// change is how many more run back with n at a place than at from.
	best, least := from, 0
	for _, step := range []int{-1, 1} {
		change := 0
		for to := from + step; to >= 0 && to < len(nodes); to += step {
			passed := nodes[to]
			// n comes before what it passes upwards, and behind what it passes downwards.
			change += step * (count(us, n, passed) - count(us, passed, n))
			if change < least {
				best, least = to, change
			}
		}
	}
	return best
}

func count(us uses, from, to node) int {
	if us[use{from, to}] > 0 {
		return 1
	}
	return 0
}
