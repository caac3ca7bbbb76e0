package main

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/printer"
	"go/token"
	"go/types"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/repo/lint"
)

// judged are the places where the product orders generations, each with what is decided there
// and why it is true whichever streams the memory went through.
var judged = map[string]string{
	"core/use.go ascending: in.Uses[i-1].Block.Generation >= in.Uses[i].Block.Generation":                                  "whether uses are sorted: any total order does, and nothing of time is read from it",
	"core/use.go merge: cmp.Compare(a.Block.Generation, b.Block.Generation)":                                               "the order of the uses of an intent, so that equal ones are neighbours: any total order does",
	"cuda/copy.go run: second.block.Generation < first.block.Generation":                                                   "which end of a copy is prepared first: any order that all copies of the process share does",
	"decorators/debugguard/canaries.go ownerOf: b.ID.Generation > owner.ID.Generation":                                     "which former owner of an address was its last: owners of one address",
	"decorators/debugguard/declarations.go undeclared: uint64(freed.ID.Generation) > r.ledger.Unseen.Load()":               "whether a block was allocated since the ledger was switched on: a counter of the process, drawn from at the switch",
	"decorators/debugguard/internal/ledger/addresses.go Owners: freed.ID.Generation < b.ID.Generation":                     "which freed block had an address last: owners of one address",
	"decorators/debugguard/internal/ledger/ledger.go Heir: max(b.ID.Generation, heir.ID.Generation)":                       "the newest block so far that has bytes of another: owners of common bytes",
	"decorators/debugguard/internal/ledger/ledger.go Heir: other.ID.Generation > max(b.ID.Generation, heir.ID.Generation)": "whether a block came later to common bytes: owners of common bytes",
	"decorators/debugguard/internal/ledger/ledger.go MayForget: g <= newest":                                               "whether a block may have left no record: a bound on what was forgotten, true whatever the order of draws and frees",
	"decorators/debugguard/internal/ledger/ledger.go MayForget: max(newest, s.tombstones.forgotten)":                       "the bound of all shards: no order between blocks",
	"decorators/debugguard/internal/ledger/shard.go forget: max(ts.forgotten, stone.Generation())":                         "the bound of one shard: no order between blocks",
	"decorators/debugguard/internal/ledger/shard.go search: uint64(id.Generation) <= l.Unseen.Load()":                      "whether a block was allocated before the ledger was switched on: a counter of the process, drawn from at the switch",
	"decorators/debugguard/openlaunch.go begin: cmp.Compare(a.generation, b.generation)":                                   "the order of the known uses, which is to be that of the intent's: any total order does",
	"decorators/debugguard/openlaunch.go begin: o.known[i-1].generation > o.known[i].generation":                           "whether the known uses are sorted: any total order does",
	"decorators/debugguard/openlaunch.go noteUses: left[0].generation < u.Block.Generation":                                "the merge of two sorted lists: any total order does",
	"decorators/debugguard/sealed.go list: cmp.Compare(a.block.ID.Generation, b.block.ID.Generation)":                      "the order in which seals are looked at: any total order does",
	"internal/findings/oracletranslator.go isCloser: b.ID.Generation > other.ID.Generation":                                "which of two blocks that had an address is meant: owners of one address",
	"internal/findings/repeats.go ranOver: f.Victim.ID.Generation <= o.newest":                                             "whether a victim was there when a block was overrun: the bound was drawn after whatever was allocated by then",
	"telemetry/history/extents.go overlapOlder: a.id.Generation < h.id.Generation":                                         "whether bytes had an earlier owner: owners of common bytes",
	"telemetry/history/replay.go admit: other > g":                                                                         "whether bytes have a later owner already: owners of common bytes",
	"telemetry/history/replay.go begin: slices.Sorted(maps.Keys(r.book.early))":                                            "the order in which blocks are placed again: of those with common bytes the earlier owner is first",
	"telemetry/history/replay.go newReplay: slices.Sorted(maps.Keys(r.waiting))":                                           "the order in which the blocks that wait are placed: of those with common bytes the earlier owner is first",
}

// TestEveryComparisonOfGenerationsIsJudged finds by their types the places where the product asks
// which of two generations is the larger one, and compares them with the list. That of the owners of an
// address the later one has the larger generation stands at core.Generation.
func TestEveryComparisonOfGenerationsIsJudged(t *testing.T) {
	if testing.Short() {
		t.Skip("it reads the types of the whole product: make check runs it")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command here")
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	root, err := lint.Root(dir)
	if err != nil {
		t.Fatal(err)
	}
	h, err := load(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, p := range h.pkgs {
		for _, f := range p.files {
			for _, place := range orderings(h.fset, p.info, f) {
				found[p.folder()+"/"+place] = true
			}
		}
	}
	for _, place := range slices.Sorted(maps.Keys(found)) {
		if judged[place] == "" {
			t.Errorf("%s: say in the list what is decided here, and why it is true across streams", place)
		}
	}
	for _, place := range slices.Sorted(maps.Keys(judged)) {
		if !found[place] {
			t.Errorf("%s: it is in the list and no longer in the code", place)
		}
	}
}

// TestOrderingsOfGenerationsAreFound shows to the search each form that an ordering can have, and what is none.
func TestOrderingsOfGenerationsAreFound(t *testing.T) {
	const before = `package core
import "cmp"
type Generation uint64
type block struct{ g Generation }
func compare[T cmp.Ordered](a, b T) int { return 0 }
func number[T ~uint64](a T) any { return a }
func same[T any](a, b T) bool { return true }
func f(a, b Generation, x, y block, n uint64, all []Generation) any { return `
	for expression, want := range map[string]bool{
		"a < b": true, "x.g >= y.g": true, "uint64(a) > n": true, "n <= (uint64(x.g))": true,
		"max(a, b)": true, "min(x.g, 1)": true, "compare(a, b)": true, "cmp.Less[Generation](a, b)": true, "cmp.Compare(x.g, b)": true,
		"a == b": false, "a != b": false, "n < 2": false, "uint64(len(all)) < n": false, "max(n, 2)": false,
		"same(a, b)": false, "compare(n, n)": false, "number(a)": false,
	} {
		fset := token.NewFileSet()
		p, f := checkText(t, fset, before+expression+" }")
		got := orderings(fset, p, f)
		if (len(got) > 0) != want {
			t.Errorf("%s: found %q, want something: %v", expression, got, want)
		}
	}
}

// orderings are the places of a file that ask which of two generations is the larger one: file, function
// and the text.
func orderings(fset *token.FileSet, info *types.Info, f *ast.File) (places []string) {
	for _, d := range f.Decls {
		fn, _ := d.(*ast.FuncDecl)
		where := filepath.Base(fset.File(f.Package).Name())
		if fn != nil {
			where += " " + fn.Name.Name
		}
		ast.Inspect(d, func(n ast.Node) bool {
			if ordersGenerations(info, n) {
				var text strings.Builder
				_ = printer.Fprint(&text, fset, n)
				places = append(places, where+": "+text.String())
			}
			return true
		})
	}
	return places
}

func ordersGenerations(info *types.Info, n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		switch n.Op {
		case token.LSS, token.LEQ, token.GTR, token.GEQ:
			return fromGeneration(info, n.X) || fromGeneration(info, n.Y)
		}
	case *ast.CallExpr:
		if info.Types[n.Fun].IsBuiltin() {
			name, _ := n.Fun.(*ast.Ident)
			return name != nil && (name.Name == "max" || name.Name == "min") && slices.ContainsFunc(n.Args, func(e ast.Expr) bool { return fromGeneration(info, e) })
		}
		return ordersByType(info, n)
	}
	return false
}

// ordersByType reports whether a generic function is called for generations by their order, such as cmp.Compare
// and slices.Sorted: one whose types are cmp.Ordered.
func ordersByType(info *types.Info, call *ast.CallExpr) bool {
	fn := ast.Unparen(call.Fun)
	if explicit, ok := fn.(*ast.IndexExpr); ok {
		fn = explicit.X
	}
	if selector, ok := fn.(*ast.SelectorExpr); ok {
		fn = selector.Sel
	}
	id, ok := fn.(*ast.Ident)
	if !ok {
		return false
	}
	object, ok := info.Uses[id].(*types.Func)
	if !ok {
		return false
	}
	parameters, instance := object.Signature().TypeParams(), info.Instances[id]
	for i := range instance.TypeArgs.Len() {
		if isGeneration(instance.TypeArgs.At(i)) && parameters.At(i).Constraint().String() == "cmp.Ordered" {
			return true
		}
	}
	return false
}

// fromGeneration reports whether an operand is a generation, or one as a plain number.
func fromGeneration(info *types.Info, e ast.Expr) bool {
	e = ast.Unparen(e)
	if isGeneration(info.TypeOf(e)) {
		return true
	}
	call, ok := e.(*ast.CallExpr)
	return ok && len(call.Args) == 1 && info.Types[call.Fun].IsType() && fromGeneration(info, call.Args[0])
}

func isGeneration(t types.Type) bool {
	named, ok := types.Unalias(t).(*types.Named)
	return ok && named.Obj().Name() == "Generation" && named.Obj().Pkg().Name() == "core"
}

// checkText finds the types of a text that is a whole file.
func checkText(t *testing.T, fset *token.FileSet, text string) (*types.Info, *ast.File) {
	t.Helper()
	f, err := parser.ParseFile(fset, "text.go", text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	info := newInfo()
	config := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	if _, err := config.Check("core", fset, []*ast.File{f}, info); err != nil {
		t.Fatal(err)
	}
	return info, f
}
