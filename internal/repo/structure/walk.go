package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/types"
	"slices"
	"strings"
)

// calls are which functions of the product mention which, in the order of the text:
// a mention counts as a call, so that callbacks that are handed on are followed.
type calls struct {
	owners *owners
	next   map[*types.Func][]*types.Func
	// concrete are the product's types that are no interfaces.
	concrete []*types.Named
}

func findCalls(pkgs []*pkg, o *owners) *calls {
	c := &calls{owners: o, next: map[*types.Func][]*types.Func{}}
	for _, p := range pkgs {
		c.concrete = append(c.concrete, concreteTypes(p)...)
	}
	slices.SortFunc(c.concrete, func(a, b *types.Named) int {
		return compareNodes(o.nodes[a.Obj()], o.nodes[b.Obj()])
	})
	for _, p := range pkgs {
		for _, d := range o.declarations(p) {
			if d.fn == nil {
				continue
			}
			ast.Inspect(d.Node, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					if f, ok := p.info.Uses[id].(*types.Func); ok {
						c.add(d.fn, f.Origin())
					}
				}
				return true
			})
		}
	}
	return c
}

// concreteTypes are the package's types that can have methods and are no interfaces.
func concreteTypes(p *pkg) (all []*types.Named) {
	scope := p.types.Scope()
	for _, name := range scope.Names() {
		obj, ok := scope.Lookup(name).(*types.TypeName)
		if !ok || obj.IsAlias() {
			continue
		}
		if named, ok := obj.Type().(*types.Named); ok && !types.IsInterface(named) && named.TypeParams().Len() == 0 {
			all = append(all, named)
		}
	}
	return all
}

// add notes that from mentions to, or, of an interface's method, those that
// implement it.
func (c *calls) add(from, to *types.Func) {
	if _, ok := c.owners.nodes[to]; !ok {
		return
	}
	targets := []*types.Func{to}
	if recv := to.Signature().Recv(); recv != nil && types.IsInterface(recv.Type()) {
		targets = append(targets, c.implementing(from, to)...)
	}
	for _, t := range targets {
		if t != from && !slices.Contains(c.next[from], t) {
			c.next[from] = append(c.next[from], t)
		}
	}
}

// implementing are the methods that a call of an interface's method can reach: in
// the stack that of the next resource further in, otherwise all.
func (c *calls) implementing(from, method *types.Func) (all []*types.Func) {
	face, ok := method.Signature().Recv().Type().Underlying().(*types.Interface)
	if !ok {
		return nil
	}
	for _, named := range c.concrete {
		if !types.Implements(types.NewPointer(named), face) || slices.Contains(notStacked, c.owners.nodes[named.Obj()].String()) {
			continue
		}
		obj, _, _ := types.LookupFieldOrMethod(types.NewPointer(named), false, method.Pkg(), method.Name())
		if f, ok := obj.(*types.Func); ok && !types.IsInterface(f.Signature().Recv().Type()) && !slices.Contains(all, f.Origin()) {
			all = append(all, f.Origin())
		}
	}
	owner := c.owners.nodes[method]
	if owner.folder == "core" && slices.Contains(outward, owner.name) {
		return all
	}
	return inwards(c, from, all)
}

// inwards leaves, of methods of which some are the stack's, that of the layer next
// inwards of the caller.
func inwards(c *calls, from *types.Func, methods []*types.Func) []*types.Func {
	level := func(f *types.Func) int { return slices.Index(stack, c.owners.nodes[f].folder) }
	caller := level(from)
	nearest := len(stack)
	for _, m := range methods {
		if l := level(m); l > caller {
			nearest = min(nearest, l)
		}
	}
	return slices.DeleteFunc(methods, func(m *types.Func) bool {
		l := level(m)
		return l >= 0 && l != nearest
	})
}

// step is a function of a walk, with how far it is from the entry.
type step struct {
	fn    *types.Func
	depth int
}

// walk lists the functions on the ways from an entry to the goals, each once, where it
// is met first when every call is followed at once in the order of the text. What a
// worker does later is listed, and not followed.
func (c *calls) walk(entry string, goals []string) ([]step, error) {
	start := c.find(entry)
	if start == nil {
		return nil, fmt.Errorf("there is no function %s any more: name in layers.go where the walk begins", entry)
	}
	if recv := start.Signature().Recv(); recv != nil && types.IsInterface(recv.Type()) {
		c.next[start] = c.implementing(start, start)
	}
	leads := c.leading(goals)
	seen := map[*types.Func]bool{}
	var steps []step
	var visit func(f *types.Func, depth int)
	visit = func(f *types.Func, depth int) {
		seen[f] = true
		steps = append(steps, step{f, depth})
		if slices.Contains(later, c.name(f)) {
			return
		}
		for _, to := range c.next[f] {
			if !seen[to] && (len(goals) == 0 || leads[to]) {
				visit(to, depth+1)
			}
		}
	}
	visit(start, 0)
	if len(steps) == 1 {
		return nil, fmt.Errorf("no way leads from %s to %v any more: say in layers.go where the walk ends", entry, goals)
	}
	return steps, nil
}

// leading are the functions from which a method of the goals can be reached.
func (c *calls) leading(goals []string) map[*types.Func]bool {
	back := map[*types.Func][]*types.Func{}
	leads := map[*types.Func]bool{}
	var queue []*types.Func
	for from, all := range c.next {
		for _, to := range all {
			back[to] = append(back[to], from)
			if slices.Contains(goals, c.owners.nodes[to].String()) && !leads[to] {
				leads[to] = true
				queue = append(queue, to)
			}
		}
	}
	for ; len(queue) > 0; queue = queue[1:] {
		for _, from := range back[queue[0]] {
			if !leads[from] {
				leads[from] = true
				queue = append(queue, from)
			}
		}
	}
	return leads
}

// find finds a function by its text, such as "core.Runtime.Launch".
func (c *calls) find(name string) *types.Func {
	for obj := range c.owners.nodes {
		if f, ok := obj.(*types.Func); ok && c.name(f) == name {
			return f
		}
	}
	return nil
}

// name is such as "cuda.stream.wait", or "cuda.newStream" for a function.
func (c *calls) name(f *types.Func) string {
	n := c.owners.nodes[f]
	folder := cmp.Or(strings.TrimPrefix(n.folder, "."), "fencepost")
	if f.Signature().Recv() == nil {
		return folder + "." + f.Name()
	}
	return folder + "." + n.name + "." + f.Name()
}

// walks writes each walk: how long it is, how many of its calls run against the order
// of the layers, and its functions.
func (w *writer) walks(c *calls, us uses) error {
	place := us.places()
	for _, way := range walks {
		steps, err := c.walk(way.entry, way.goals)
		if err != nil {
			return err
		}
		member := map[*types.Func]bool{}
		types, folders := map[node]bool{}, map[string]bool{}
		for _, s := range steps {
			n := c.owners.nodes[s.fn]
			member[s.fn], types[n], folders[n.folder] = true, true, true
		}
		calls, against := 0, 0
		for f := range member {
			for _, to := range c.next[f] {
				if !member[to] {
					continue
				}
				calls++
				if runsBack(use{c.owners.nodes[f], c.owners.nodes[to]}, place) {
					against++
				}
			}
		}
		w.line("\nThe walk of %s: %d functions of %d types in %d packages; of %d calls between them %d run against the order.\n",
			way.name, len(steps), len(types), len(folders), calls, against)
		for _, s := range steps {
			w.line("%s%s", strings.Repeat(" ", s.depth), c.name(s.fn))
		}
	}
	return nil
}
