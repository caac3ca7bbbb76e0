package mutation

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// The operators. Each changes one place of a function's syntax tree, where [activemutant.At] says so:
//
//   - a statement is dropped: a call, an assignment, an increment, or a call whose error is looked at
//   - two statements in a row that call something are swapped, where order is what a function is about
//   - a loop skips an element
//   - a condition that fails is taken to hold, or one that holds to fail, of an if, of a case, and of a
//     result that is a bool, operand by operand
//   - a comparison is off by one where both sides are equal
//   - an increment is made twice, and a sequence number that is assigned is one too small
//
// Locks are left alone, as no call overlaps another here; so are statistics, what the programs do not
// do (captures, copies from other devices), and failures of the driver, which the suites of faults
// are for.
const (
	dropped  = "dropped"
	swapped  = "swapped"
	skipped  = "an element skipped"
	holds    = "taken to hold"
	fails    = "taken to fail"
	offByOne = "off by one"
	twice    = "made twice"
	tooSmall = "one too small"
)

// rewriter changes functions of one file: each gets all of its mutants, behind switches.
type rewriter struct {
	source []byte
	set    *token.FileSet
	file   string
	// fn is the function that is changed, results the types of the results of the function or
	// literal around what is changed.
	fn      string
	results []string
	// places are the only texts to be changed, nil for all. leaves: it returns with a lock held or
	// not, by its result.
	places []string
	leaves bool
	// add makes a site and returns its number.
	add func(fn, operator, text string) int
}

// at is the call that says whether an operator changes n: a constant if it never does.
func (r *rewriter) at(operator string, n ast.Node) ast.Expr {
	if !r.isPlace(n) {
		return ast.NewIdent("false")
	}
	return r.parse(fmt.Sprintf("mutation.At(%d)", r.add(r.fn, operator, oneLine(r.raw(n)))))
}

// isPlace reports whether n may be changed.
func (r *rewriter) isPlace(n ast.Node) bool {
	return r.places == nil || slices.Contains(r.places, oneLine(r.raw(n)))
}

// raw is the text of a node as it was.
func (r *rewriter) raw(n ast.Node) string {
	return string(r.source[r.set.Position(n.Pos()).Offset:r.set.Position(n.End()).Offset])
}

// parse is an expression, of which there is a text.
func (r *rewriter) parse(text string) ast.Expr {
	x, err := parser.ParseExprFrom(r.set, "", text, parser.SkipObjectResolution)
	if err != nil {
		panic(fmt.Sprintf("%q: %v", text, err)) // it comes from a file that was parsed
	}
	return x
}

// oneLine is a text with its white space made single spaces, and cut off behind the first line.
func oneLine(text string) string {
	if first, _, more := strings.Cut(text, "\n"); more {
		text = first + " …"
	}
	return strings.Join(strings.Fields(text), " ")
}

// join is a chain of operands.
func join(op token.Token, operands ...ast.Expr) ast.Expr {
	x := operands[0]
	for _, y := range operands[1:] {
		x = &ast.BinaryExpr{X: x, Op: op, Y: y}
	}
	return x
}

func and(operands ...ast.Expr) ast.Expr { return join(token.LAND, operands...) }
func or(operands ...ast.Expr) ast.Expr  { return join(token.LOR, operands...) }
func not(x ast.Expr) ast.Expr           { return &ast.UnaryExpr{Op: token.NOT, X: x} }

func when(is ast.Expr, do ...ast.Stmt) *ast.IfStmt {
	return &ast.IfStmt{Cond: is, Body: &ast.BlockStmt{List: do}}
}

// body changes the body of a function.
func (r *rewriter) body(fn *ast.FuncDecl) {
	r.fn, r.results = functionName(fn), resultTypes(fn.Type)
	r.places, _ = places(r.file, r.fn)
	r.leaves = strings.Contains(r.raw(fn), "TryLock")
	r.list(&fn.Body.List)
}

func resultTypes(t *ast.FuncType) (names []string) {
	if t.Results == nil {
		return nil
	}
	for _, f := range t.Results.List {
		names = append(names, slices.Repeat([]string{types.ExprString(f.Type)}, max(1, len(f.Names)))...)
	}
	return names
}

// list changes statements that follow each other.
func (r *rewriter) list(list *[]ast.Stmt) {
	var all []ast.Stmt
	for left := *list; len(left) > 0; {
		n := 1
		for n < len(left) && mayMove(left[0]) && mayMove(left[n]) {
			n++
		}
		all = append(all, r.run(left[:n])...)
		left = left[n:]
	}
	*list = all
}

// run changes statements that may move, and puts in front of them each pair of neighbours swapped.
func (r *rewriter) run(list []ast.Stmt) []ast.Stmt {
	swaps := map[int]ast.Expr{} // by the later of two
	for i := 1; i < len(list) && slices.Contains(ordered, r.fn); i++ {
		if calls(list[i-1]) && calls(list[i]) && !r.isLeft(list[i-1]) && !r.isLeft(list[i]) {
			swaps[i] = r.at(swapped, list[i])
		}
	}
	changed := make([][]ast.Stmt, len(list))
	for i, s := range list {
		changed[i] = r.statement(s)
	}
	all := slices.Concat(changed...)
	for _, i := range slices.Backward(slices.Sorted(maps.Keys(swaps))) {
		other := slices.Clone(changed)
		other[i-1], other[i] = other[i], other[i-1]
		way := when(swaps[i], slices.Concat(other...)...)
		way.Else = &ast.BlockStmt{List: all}
		all = []ast.Stmt{way}
	}
	return all
}

// mayMove reports whether a statement may come before or after its neighbour.
func mayMove(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt:
		return !locks(s.X)
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE
	case *ast.IfStmt, *ast.RangeStmt, *ast.IncDecStmt:
		return true
	}
	return false
}

// calls reports whether a statement calls something.
func calls(s ast.Stmt) bool {
	found := false
	ast.Inspect(s, func(n ast.Node) bool {
		_, is := n.(*ast.CallExpr)
		found = found || is
		return !found
	})
	return found
}

// locks reports whether an expression is a call that takes a lock or gives it back.
func locks(x ast.Expr) bool {
	call, ok := x.(*ast.CallExpr)
	if !ok {
		return false
	}
	of, ok := call.Fun.(*ast.SelectorExpr)
	return ok && slices.Contains([]string{"Lock", "Unlock", "TryLock", "MayBeRecorded", "RLock", "RUnlock"}, of.Sel.Name)
}

// isMutated reports whether a text has a mutant of the table in it, which no operator changes.
func (r *rewriter) isMutated(n ast.Node) bool { return strings.Contains(r.raw(n), "mutation.At(") }

// isLeft reports whether no operator changes a statement: one that the table has changed, or one
// of statistics.
func (r *rewriter) isLeft(s ast.Stmt) bool {
	if r.isMutated(s) {
		return true
	}
	switch s.(type) {
	case *ast.ExprStmt, *ast.AssignStmt, *ast.IncDecStmt, *ast.IfStmt:
		if s, ok := s.(*ast.IfStmt); ok {
			return s.Init != nil && left.MatchString(r.raw(s.Init))
		}
		return left.MatchString(r.raw(s))
	}
	return false
}

// left are the statistics, what an oracle of tests is told, captures, other devices, and blocks that
// a failure has poisoned.
var left = regexp.MustCompile(`\b(counts|Counts\(\)|calls|books|Fails|count|freeAttempts|name|oracle|onPeer|backlog\w*|poison\w*|fenced|[cC]rossStream|needed|flights|Waits|Elided|ended)\b|bytes\.(note|apart)\b|\.Note\(|Captur|ErrStreamMisuse|AsksDriver|waited\(`)

// statement changes one statement.
func (r *rewriter) statement(s ast.Stmt) []ast.Stmt {
	if r.isLeft(s) {
		switch s.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt, *ast.SwitchStmt, *ast.CaseClause, *ast.BlockStmt:
			r.inside(s) // its parts are changed
		}
		return []ast.Stmt{s}
	}
	var drop ast.Expr
	var more []ast.Stmt
	switch s := s.(type) {
	case *ast.IncDecStmt:
		drop, more = r.at(dropped, s), []ast.Stmt{when(r.at(twice, s), s)}
	case *ast.ExprStmt:
		if !locks(s.X) {
			drop = r.at(dropped, s)
		}
	case *ast.AssignStmt:
		if s.Tok != token.DEFINE {
			drop = r.at(dropped, s)
		}
		if len(s.Lhs) == 1 && r.isSequence(s.Lhs[0]) {
			more = []ast.Stmt{when(r.at(tooSmall, s), &ast.IncDecStmt{X: s.Lhs[0], Tok: token.DEC})}
		}
	case *ast.IfStmt:
		if s.Init != nil && s.Else == nil && check.MatchString(r.raw(s.Cond)) && len(s.Body.List) == 1 {
			drop = r.at(dropped, s)
		}
	}
	r.inside(s)
	if drop != nil {
		s = when(not(drop), s)
	}
	return append([]ast.Stmt{s}, more...)
}

// sequence is a field with a sequence number, check a comparison of an error with nil, and guard any with
// nil.
var (
	sequence = regexp.MustCompile(`\.(seq|newest|sharedSeq)$`)
	check    = regexp.MustCompile(`^(\w*[eE]rr|failed) [!=]= nil$`)
	guarded  = regexp.MustCompile(` [!=]= nil$`)
)

// isSequence reports whether an expression is a field with a sequence number.
func (r *rewriter) isSequence(x ast.Expr) bool {
	return sequence.MatchString(r.raw(x)) || strings.HasSuffix(r.file, "/fit.go") && strings.HasSuffix(r.raw(x), ".mark")
}

// inside changes what is in a node.
func (r *rewriter) inside(n ast.Node) {
	results := r.results
	ast.Inspect(n, func(part ast.Node) bool {
		switch part := part.(type) {
		case *ast.BlockStmt:
			r.list(&part.List)
		case *ast.FuncLit:
			r.results = resultTypes(part.Type)
			r.list(&part.Body.List)
			r.results = results
		case *ast.RangeStmt:
			skips := !r.isMutated(part) && slices.ContainsFunc(part.Body.List, func(s ast.Stmt) bool { return !r.isLeft(s) })
			if r.list(&part.Body.List); skips {
				part.Body.List = append([]ast.Stmt{when(r.at(skipped, part), &ast.BranchStmt{Tok: token.CONTINUE})}, part.Body.List...)
			}
		case *ast.CaseClause:
			for i, x := range part.List {
				if _, compares := x.(*ast.BinaryExpr); compares {
					part.List[i] = r.condition(x)
				}
			}
			r.list(&part.Body)
		case *ast.IfStmt:
			if r.isMutated(part.Cond) {
				return false // the table has put it there
			}
			if part.Init != nil {
				r.inside(part.Init)
			}
			part.Cond = r.condition(part.Cond)
			r.list(&part.Body.List)
			if part.Else != nil {
				r.inside(part.Else)
			}
		case *ast.ReturnStmt:
			for i, x := range part.Results {
				if len(results) == len(part.Results) && results[i] == "bool" {
					part.Results[i] = r.condition(x)
				} else {
					r.inside(x)
				}
			}
		default:
			return true
		}
		return false
	})
}

// condition changes a condition. In a chain of && only the failing of the whole is a mutant, as that of
// any operand is the same, and the holding of an operand that fails alone; with || it is the other
// way round. So each execution that counts is one in which the mutant makes a difference.
func (r *rewriter) condition(x ast.Expr) ast.Expr {
	op, operands := chain(x)
	raw := make([]string, len(operands))
	changed := make([]ast.Expr, len(operands))
	spared := true
	for i, o := range operands {
		raw[i], changed[i] = r.raw(o), r.operand(o)
		spared = spared && isLeaf(o) && r.isSpared(o)
	}
	whole := join(op, changed...)
	if r.isMutated(x) || spared {
		return whole
	}
	others := func(i int) ast.Expr {
		if len(operands) == 1 {
			return ast.NewIdent(map[token.Token]string{token.LAND: "true", token.LOR: "false"}[op])
		}
		return r.parse(strings.Join(slices.Delete(slices.Clone(raw), i, i+1), " "+op.String()+" "))
	}
	twice := len(operands) == 1 || !impure.MatchString(r.raw(x))
	if op == token.LOR {
		whole = or(whole, r.at(holds, x))
	} else if raw[0] != "false" {
		whole = and(whole, not(r.at(fails, x)))
	}
	for i, o := range operands {
		if !twice || !isLeaf(o) || r.isSpared(o) || !r.isPlace(o) || i == 0 && len(operands) > 1 && r.places == nil && comparesLiteral(o) {
			continue // the last is of an index that the others need
		}
		if op == token.LOR {
			whole = and(whole, or(others(i), not(r.at(fails, o))))
		} else if raw[i] != "true" {
			whole = or(whole, and(others(i), r.at(holds, o)))
		}
		switch equal, open := r.boundary(o); {
		case equal == nil:
		case op == token.LOR && !open:
			whole = and(whole, or(others(i), not(and(equal, r.at(offByOne, o)))))
		case op == token.LAND && open:
			whole = or(whole, and(others(i), equal, r.at(offByOne, o)))
		case op == token.LAND && len(operands) == 1:
			whole = and(whole, not(and(equal, r.at(offByOne, o))))
		}
	}
	return whole
}

// impure are calls that must not be made twice.
var impure = regexp.MustCompile(`CompareAndSwap|Swap\(|TryLock|[cC]lose\(|watch\(|Watch\(|holdDeferred|finish|func\(`)

// chain is the operator and the operands of a condition: of one that is no chain, && and the whole.
func chain(x ast.Expr) (op token.Token, operands []ast.Expr) {
	b, ok := x.(*ast.BinaryExpr)
	if !ok || b.Op != token.LAND && b.Op != token.LOR {
		return token.LAND, []ast.Expr{x}
	}
	if of, ok := b.X.(*ast.BinaryExpr); ok && of.Op == b.Op {
		_, operands = chain(b.X)
	} else {
		operands = []ast.Expr{b.X}
	}
	return b.Op, append(operands, b.Y)
}

// isLeaf reports whether an operand is no chain itself.
func isLeaf(x ast.Expr) bool {
	_, operands := chain(ast.Unparen(x))
	return len(operands) == 1
}

// operand changes an operand: a chain with the mutants of its own.
func (r *rewriter) operand(x ast.Expr) ast.Expr {
	if isLeaf(x) {
		r.inside(x)
		return x
	}
	return r.condition(ast.Unparen(x))
}

// isSpared reports whether an operand is left alone: an error's, and where a whole function is changed what
// compares with nil, as the other way leads to a panic at once.
func (r *rewriter) isSpared(x ast.Expr) bool {
	text := r.raw(x)
	return check.MatchString(text) || r.places == nil && guarded.MatchString(text) || left.MatchString(text) || locks(x) || strings.Contains(text, "TryLock") || r.leaves && (text == "true" || text == "false")
}

// comparesLiteral reports whether something is compared with a number that is written down.
func comparesLiteral(x ast.Expr) bool {
	b, ok := x.(*ast.BinaryExpr)
	if !ok {
		return false
	}
	_, ok = b.Y.(*ast.BasicLit)
	return ok
}

// boundary is that both sides of a comparison are equal, nil for what is none, and whether it fails then.
func (r *rewriter) boundary(x ast.Expr) (equal ast.Expr, open bool) {
	b, ok := x.(*ast.BinaryExpr)
	if !ok || comparesLiteral(x) { // to be taken to hold or to fail is the same
		return nil, false
	}
	switch b.Op {
	case token.LSS, token.GTR, token.LEQ, token.GEQ:
		return r.parse(r.raw(b.X) + " == " + r.raw(b.Y)), b.Op == token.LSS || b.Op == token.GTR
	}
	return nil, false
}
