package mutation

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
)

// The operators. Each changes one place of a function's syntax tree, where [activemutant.At] says so:
//
//   - a statement is dropped: a call, an assignment, an increment, or a call whose error is looked at
//   - two statements in a row that call something are swapped, where order is what a function is about
//   - a loop skips an element
//   - a condition that fails is taken to hold, or one that holds to fail: each operand of && and || of
//     an if, of a case, and of a result that is a bool
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

// rewriter renders functions of one file with their mutants in them, behind switches.
type rewriter struct {
	source []byte
	set    *token.FileSet
	file   string
	// fn is the function that is rendered, results the types of the results of the function or
	// literal around what is rendered.
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
func (r *rewriter) at(operator string, n ast.Node) string {
	text := oneLine(r.raw(n.Pos(), n.End()))
	if r.places != nil && !slices.Contains(r.places, text) {
		return "false"
	}
	return fmt.Sprintf("mutation.At(%d)", r.add(r.fn, operator, text))
}

func (r *rewriter) raw(from, to token.Pos) string {
	return string(r.source[r.set.Position(from).Offset:r.set.Position(to).Offset])
}

// oneLine is a text with its white space made single spaces, and cut off behind the first line.
func oneLine(text string) string {
	if first, _, more := strings.Cut(text, "\n"); more {
		text = first + " …"
	}
	return strings.Join(strings.Fields(text), " ")
}

// body renders the body of a function.
func (r *rewriter) body(fn *ast.FuncDecl) string {
	r.fn, r.results = functionName(fn), resultTypes(fn.Type)
	r.places, _ = places(r.file, r.fn)
	r.leaves = strings.Contains(r.raw(fn.Pos(), fn.End()), "TryLock")
	return r.block(fn.Body)
}

func resultTypes(t *ast.FuncType) (types []string) {
	if t.Results == nil {
		return nil
	}
	for _, f := range t.Results.List {
		name := ""
		if id, ok := f.Type.(*ast.Ident); ok {
			name = id.Name
		}
		for range max(1, len(f.Names)) {
			types = append(types, name)
		}
	}
	return types
}

func (r *rewriter) block(b *ast.BlockStmt) string { return "{\n" + r.list(b.List) + "}" }

// list renders statements that follow each other.
func (r *rewriter) list(list []ast.Stmt) string {
	texts := make([]string, len(list))
	for i, s := range list {
		texts[i] = r.statement(s)
	}
	var out strings.Builder
	for from := 0; from < len(list); {
		to := from + 1
		for to < len(list) && mayMove(list[from]) && mayMove(list[to]) {
			to++
		}
		r.run(&out, list[from:to], texts[from:to])
		from = to
	}
	return out.String()
}

// run writes statements that may move, and in front of them each pair of neighbours swapped.
func (r *rewriter) run(out *strings.Builder, list []ast.Stmt, texts []string) {
	swaps := 0
	for i := 1; i < len(list) && slices.Contains(ordered, r.fn); i++ {
		if !calls(list[i-1]) || !calls(list[i]) || r.isLeft(list[i-1]) || r.isLeft(list[i]) {
			continue
		}
		other := slices.Clone(texts)
		other[i-1], other[i] = other[i], other[i-1]
		fmt.Fprintf(out, "if %s {\n%s\n} else ", r.at(swapped, list[i]), strings.Join(other, "\n"))
		swaps++
	}
	if swaps > 0 {
		fmt.Fprintf(out, "{\n%s\n}\n", strings.Join(texts, "\n"))
	} else {
		fmt.Fprintln(out, strings.Join(texts, "\n"))
	}
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
func (r *rewriter) isMutated(n ast.Node) bool {
	return strings.Contains(r.raw(n.Pos(), n.End()), "mutation.At(")
}

// isLeft reports whether no operator changes a statement: one that the table has changed, or one
// of statistics.
func (r *rewriter) isLeft(s ast.Stmt) bool {
	if r.isMutated(s) {
		return true
	}
	switch s.(type) {
	case *ast.ExprStmt, *ast.AssignStmt, *ast.IncDecStmt, *ast.IfStmt:
		if s, ok := s.(*ast.IfStmt); ok {
			return s.Init != nil && left.MatchString(r.raw(s.Init.Pos(), s.Init.End()))
		}
		return left.MatchString(r.raw(s.Pos(), s.End()))
	}
	return false
}

// left are the statistics, what an oracle of tests is told, captures, other devices, and blocks that
// a failure has poisoned.
var left = regexp.MustCompile(`\b(counts|Counts\(\)|calls|books|Fails|count|freeAttempts|name|oracle|onPeer|backlog\w*|poison\w*|fenced|CrossStream|WrittenByOther|flights|Waits|Elided|ended)\b|bytes\.note|\.Note\(|Captur|ErrStreamMisuse|AsksNobody|AsksDriver|waited\(`)

// statement renders one statement.
func (r *rewriter) statement(s ast.Stmt) string {
	if r.isLeft(s) {
		if _, hasParts := s.(*ast.IfStmt); !hasParts {
			return r.raw(s.Pos(), s.End())
		}
		return r.render(s)
	}
	text := r.render(s)
	switch s := s.(type) {
	case *ast.IncDecStmt:
		text = fmt.Sprintf("if !%s {\n%s\n}\nif %s {\n%s\n}", r.at(dropped, s), text, r.at(twice, s), text)
	case *ast.ExprStmt:
		if !locks(s.X) {
			text = fmt.Sprintf("if !%s {\n%s\n}", r.at(dropped, s), text)
		}
	case *ast.AssignStmt:
		if s.Tok != token.DEFINE {
			text = fmt.Sprintf("if !%s {\n%s\n}", r.at(dropped, s), text)
		}
		if len(s.Lhs) == 1 && r.isSequence(s.Lhs[0]) {
			text += fmt.Sprintf("\nif %s {\n%s--\n}", r.at(tooSmall, s), r.raw(s.Lhs[0].Pos(), s.Lhs[0].End()))
		}
	case *ast.IfStmt:
		if s.Init != nil && s.Else == nil && isErrorCheck(s.Cond) && len(s.Body.List) == 1 {
			text = fmt.Sprintf("if !%s {\n%s\n}", r.at(dropped, s), text)
		}
	}
	return text
}

// isSequence reports whether an expression is a field with a sequence number.
func (r *rewriter) isSequence(x ast.Expr) bool {
	of, ok := x.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	switch of.Sel.Name {
	case "seq", "newest", "sharedSeq":
		return true
	case "mark":
		return strings.HasSuffix(r.file, "/fit.go")
	}
	return false
}

// isGuard reports whether a condition compares with nil: of a whole function that is left, as the
// other way leads to a panic at once.
func (r *rewriter) isGuard(x ast.Expr) bool {
	b, ok := x.(*ast.BinaryExpr)
	return ok && r.places == nil && (b.Op == token.EQL || b.Op == token.NEQ) && r.raw(b.Y.Pos(), b.Y.End()) == "nil"
}

// isErrorCheck reports whether a condition compares an error with nil.
func isErrorCheck(x ast.Expr) bool {
	b, ok := x.(*ast.BinaryExpr)
	if !ok {
		return false
	}
	name, ok := b.X.(*ast.Ident)
	nothing, isName := b.Y.(*ast.Ident)
	return ok && isName && nothing.Name == "nil" && (strings.HasSuffix(strings.ToLower(name.Name), "err") || name.Name == "failed")
}

// render renders a node with the mutants of what is in it.
func (r *rewriter) render(n ast.Node) string {
	var out strings.Builder
	at := n.Pos()
	put := func(part ast.Node, text string) {
		out.WriteString(r.raw(at, part.Pos()))
		out.WriteString(text)
		at = part.End()
	}
	results := r.results
	ast.Inspect(n, func(part ast.Node) bool {
		switch part := part.(type) {
		case *ast.BlockStmt:
			put(part, r.block(part))
			return false
		case *ast.FuncLit:
			r.results = resultTypes(part.Type)
			put(part.Body, r.block(part.Body))
			r.results = results
			return false
		case *ast.RangeStmt:
			body := r.block(part.Body)
			if !r.isMutated(part) {
				body = fmt.Sprintf("{\nif %s {\ncontinue\n}\n%s", r.at(skipped, part), body[1:])
			}
			put(part.Body, body)
			return false
		case *ast.CaseClause:
			r.clause(part, put)
			return false
		case *ast.IfStmt:
			if r.isMutated(part.Cond) {
				return false // the table has put it there
			}
			if part.Init != nil {
				put(part.Init, r.render(part.Init))
			}
			put(part.Cond, r.condition(part.Cond))
			put(part.Body, r.block(part.Body))
			if part.Else != nil {
				put(part.Else, r.render(part.Else))
			}
			return false
		case *ast.ReturnStmt:
			for i, x := range part.Results {
				if len(results) == len(part.Results) && results[i] == "bool" {
					put(x, r.condition(x))
				} else {
					put(x, r.render(x))
				}
			}
			return false
		}
		return true
	})
	out.WriteString(r.raw(at, n.End()))
	return out.String()
}

// clause renders a case, with conditions if the switch has no tag.
func (r *rewriter) clause(c *ast.CaseClause, put func(ast.Node, string)) {
	for _, x := range c.List {
		if _, compares := x.(*ast.BinaryExpr); compares {
			put(x, r.condition(x))
		}
	}
	if len(c.Body) > 0 {
		put(&span{c.Body[0].Pos(), c.Body[len(c.Body)-1].End()}, strings.TrimSuffix(r.list(c.Body), "\n"))
	}
}

type span struct{ from, to token.Pos }

func (s *span) Pos() token.Pos { return s.from }
func (s *span) End() token.Pos { return s.to }

// condition renders a condition.
func (r *rewriter) condition(x ast.Expr) string {
	text := r.raw(x.Pos(), x.End())
	if r.isMutated(x) || isErrorCheck(x) || r.isGuard(x) || r.leaves && (text == "true" || text == "false") {
		return text
	}
	if _, more := x.(*ast.BinaryExpr); !more && left.MatchString(r.raw(x.Pos(), x.End())) {
		return r.raw(x.Pos(), x.End())
	}
	switch x := x.(type) {
	case *ast.ParenExpr:
		return "(" + r.condition(x.X) + ")"
	case *ast.BinaryExpr:
		if x.Op == token.LAND || x.Op == token.LOR {
			return r.condition(x.X) + " " + x.Op.String() + " " + r.condition(x.Y)
		}
	case *ast.CallExpr:
		if locks(x) {
			return r.raw(x.Pos(), x.End())
		}
	case *ast.UnaryExpr:
		if locks(x.X) {
			return r.raw(x.Pos(), x.End())
		}
	}
	whole := r.render(x)
	if b, ok := x.(*ast.BinaryExpr); ok {
		equal := r.raw(b.X.Pos(), b.X.End()) + " == " + r.raw(b.Y.Pos(), b.Y.End())
		switch _, literal := b.Y.(*ast.BasicLit); {
		case literal: // to be taken to hold or to fail is the same
		case b.Op == token.LSS || b.Op == token.GTR:
			whole = fmt.Sprintf("%s || %s && %s", whole, equal, r.at(offByOne, x))
		case b.Op == token.LEQ || b.Op == token.GEQ:
			whole = fmt.Sprintf("%s && !(%s && %s)", whole, equal, r.at(offByOne, x))
		}
	}
	if text != "true" {
		whole = fmt.Sprintf("(%s || %s)", whole, r.at(holds, x))
	}
	if text != "false" {
		whole = fmt.Sprintf("(%s && !%s)", whole, r.at(fails, x))
	}
	return whole
}
