package main

import (
	"go/ast"
	"go/types"
	"regexp"
	"slices"
)

// node is what uses and is used: a type with its methods, or a function, a
// variable or a constant that belongs to no type.
type node struct {
	folder, name string
}

// String is such as "cuda.stream".
func (n node) String() string {
	if n.folder == "." {
		return "fencepost." + n.name
	}
	return n.folder + "." + n.name
}

// owners say to which node an object of the product belongs.
type owners struct {
	nodes map[types.Object]node
	names map[string]string // folders by import path
}

// findOwners goes through what the packages declare. A method and a field belong
// to their type. A function belongs to the type of its first parameter that is a
// type of its package, as it could be a method, or else of its first result; a
// constructor, which [constructs] tells by its name, belongs to its result also if it
// takes a Config. A variable and a constant belong to their type. What has no such
// type stands for itself. So neither the file nor the form in which something is
// written counts.
func findOwners(pkgs []*pkg) *owners {
	o := &owners{nodes: map[types.Object]node{}, names: map[string]string{}}
	for _, p := range pkgs {
		o.names[p.ImportPath] = p.folder()
	}
	for _, p := range pkgs {
		for _, obj := range p.info.Defs {
			o.enter(p, obj)
		}
	}
	return o
}

// enter notes the node of an object that is declared in p, if it is not local.
func (o *owners) enter(p *pkg, obj types.Object) {
	if obj == nil {
		return
	}
	global := obj.Parent() == p.types.Scope()
	switch obj := obj.(type) {
	case *types.TypeName:
		if global {
			o.nodes[obj] = o.self(obj)
			o.fields(obj.Type().Underlying(), o.nodes[obj])
		}
	case *types.Func:
		o.nodes[obj] = o.ofFunc(obj)
	case *types.Var, *types.Const:
		if global {
			o.nodes[obj] = o.ofValue(obj)
		}
	}
}

func (o *owners) self(obj types.Object) node { return node{o.names[obj.Pkg().Path()], obj.Name()} }

var constructs = regexp.MustCompile("^([nN]ew|[oO]pen)([A-Z]|$)")

func (o *owners) ofFunc(f *types.Func) node {
	signature := f.Signature()
	if recv := signature.Recv(); recv != nil {
		if named := namedOf(recv.Type()); named != nil {
			return o.self(named.Obj())
		}
		return node{o.names[f.Pkg().Path()], "interface"} // of an interface without a name
	}
	tuples := []*types.Tuple{signature.Params(), signature.Results()}
	if constructs.MatchString(f.Name()) {
		slices.Reverse(tuples)
	}
	for _, tuple := range tuples {
		for v := range tuple.Variables() {
			if named := namedOf(v.Type()); named != nil && named.Obj().Pkg() == f.Pkg() {
				return o.self(named.Obj())
			}
		}
	}
	return o.self(f)
}

func (o *owners) ofValue(obj types.Object) node {
	if named := namedOf(obj.Type()); named != nil && named.Obj().Pkg() == obj.Pkg() {
		return o.self(named.Obj())
	}
	return o.self(obj)
}

// fields enters the fields and methods that a type's own text declares.
func (o *owners) fields(t types.Type, owner node) {
	switch t := t.(type) {
	case *types.Struct:
		for f := range t.Fields() {
			o.nodes[f] = owner
			o.fields(f.Type(), owner)
		}
	case *types.Interface:
		for m := range t.ExplicitMethods() {
			o.nodes[m] = owner
		}
	case *types.Pointer:
		o.fields(t.Elem(), owner)
	case *types.Slice:
		o.fields(t.Elem(), owner)
	case *types.Array:
		o.fields(t.Elem(), owner)
	case *types.Map:
		o.fields(t.Key(), owner)
		o.fields(t.Elem(), owner)
	case *types.Chan:
		o.fields(t.Elem(), owner)
	}
}

// of is the node of an object that is mentioned, if it is of the product.
func (o *owners) of(obj types.Object) (node, bool) {
	switch v := obj.(type) {
	case *types.Func:
		obj = v.Origin()
	case *types.Var:
		obj = v.Origin()
	case *types.TypeName:
		if named := namedOf(v.Type()); named != nil && v.IsAlias() {
			obj = named.Obj()
		}
	}
	n, ok := o.nodes[obj]
	return n, ok
}

// namedOf is the type with a name that t is, points to or has elements of.
func namedOf(t types.Type) *types.Named {
	for {
		switch x := types.Unalias(t).(type) {
		case *types.Named:
			return x.Origin()
		case *types.Pointer:
			t = x.Elem()
		case *types.Slice:
			t = x.Elem()
		case *types.Array:
			t = x.Elem()
		default:
			return nil
		}
	}
}

// declaration is a part of a file that belongs to one node.
type declaration struct {
	ast.Node
	owner node
	// fn is set if it is a function.
	fn *types.Func
}

// declarations are those of a package's files, in order.
func (o *owners) declarations(p *pkg) (all []declaration) {
	for _, f := range p.files {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				fn := p.info.Defs[d.Name].(*types.Func)
				all = append(all, declaration{d, o.nodes[fn], fn})
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					all = append(all, o.ofSpec(p, spec)...)
				}
			}
		}
	}
	return all
}

func (o *owners) ofSpec(p *pkg, spec ast.Spec) (all []declaration) {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		return []declaration{{s, o.nodes[p.info.Defs[s.Name]], nil}}
	case *ast.ValueSpec:
		for _, name := range s.Names {
			if obj := p.info.Defs[name]; obj != nil && name.Name != "_" {
				return []declaration{{s, o.nodes[obj], nil}}
			}
		}
	}
	return nil // an import, or an assertion that a type implements an interface
}
