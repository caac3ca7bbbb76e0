package lint

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
	"unicode"
)

// retired are words that once had several meanings, or one that the field calls
// otherwise, and what says it now. They must not come back in identifiers; see
// docs/glossary.md.
type retired struct {
	// under are folders; one that ends in "/..." stands for all below it, too.
	under []string
	// words maps each word, or several as in "late event", to its replacement.
	words map[string]string
}

// retiredWords are those of this repository. A word that is retired in one
// package may have its one meaning in another.
var retiredWords = []retired{
	{under: []string{"./..."}, words: map[string]string{
		"odometer":         "free counters",
		"deallocate asked": "deallocate requested at",
		"sentinel":         "canary",
		"witness":          "oracle translator",
	}},
	{under: []string{"decorators/budget"}, words: map[string]string{
		"purse": "account",
		"till":  "stream account",
		"lane":  "stream ledger",
	}},
	{under: []string{"decorators/debugguard/..."}, words: map[string]string{
		"held":      "footprint, memory or known use",
		"passed":    "completed",
		"taken":     "removed or ending",
		"asked":     "requested",
		"settled":   "queued",
		"confine":   "quarantine",
		"inward":    "forwarded",
		"graveyard": "tombstones",
		"bury":      "tombstone",
		"buried":    "tombstone",
		"dead":      "released or dropped",
	}},
	{under: []string{"telemetry/...", "decorators/logging"}, words: map[string]string{
		"held":    "memory, amounts, owned, in flight, or what else is meant",
		"hold":    "overlap, or what else is meant",
		"passed":  "admitted of a finding, elapsed of time",
		"asked":   "wanted, awaiting, or what else is meant",
		"taken":   "removed or granted",
		"late":    "unfinished, or to complete",
		"settle":  "finish, or what is done",
		"settled": "done",
	}},
	{under: []string{"internal/fence"}, words: map[string]string{"sealed": "shareable, of a ready point"}},
	{under: []string{"cuda"}, words: map[string]string{ //nolint:gosec // "passed" is no password
		"passed":   "completed, or what else is meant",
		"unmarked": "unrecorded",
		"asked":    "queried of a driver, requested of a free, or what else is meant",
		"taken":    "what is counted or who has it",
		"late":     "deferred record",
		"hold":     "pin, block a free, put in the backlog, count as mapped, or register",
		"holds":    "blocked frees, or what else is meant",
		"held":     "pinned, in the backlog, blocked, or what else is meant",
		"settle":   "prune, or what is waited for",
		"settled":  "complete, released, or what else is meant",
	}},
}

// Retired finds identifiers that declare something by a retired word, and files
// named by one. Tests may use the words: there they are prose.
func Retired(files []*File) []Violation { return findRetired(files, retiredWords) }

func findRetired(files []*File, all []retired) []Violation {
	var found []Violation
	for _, f := range files {
		if !f.IsGo() || f.IsTest() {
			continue
		}
		for _, r := range all {
			if r.covers(f.Dir()) {
				found = append(found, r.in(f)...)
			}
		}
	}
	return found
}

func (r *retired) covers(dir string) bool {
	return slices.ContainsFunc(r.under, func(folder string) bool {
		tree, below := strings.CutSuffix(folder, "/...")
		return dir == folder || below && (tree == "." || under(dir, tree))
	})
}

func (r *retired) in(f *File) []Violation {
	var found []Violation
	report := func(name string, at ast.Node) {
		spelled := " " + strings.Join(wordsOf(name), " ") + " "
		for word, instead := range r.words {
			if strings.Contains(spelled, " "+word+" ") {
				found = append(found, f.at(at, "%s: the word %q was retired, say %q (docs/glossary.md)", name, word, instead))
			}
		}
	}
	report(strings.TrimSuffix(path.Base(f.Path), ".go"), f.Syntax)
	for _, id := range declared(f.Syntax) {
		report(id.Name, id)
	}
	slices.SortFunc(found, func(a, b Violation) int { return strings.Compare(a.String(), b.String()) })
	return found
}

// declared are the identifiers that a file declares: types, fields, methods,
// functions, parameters, constants, variables and labels.
func declared(file *ast.File) (ids []*ast.Ident) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			ids = append(ids, n.Name)
		case *ast.TypeSpec:
			ids = append(ids, n.Name)
		case *ast.Field:
			ids = append(ids, n.Names...)
		case *ast.ValueSpec:
			ids = append(ids, n.Names...)
		case *ast.LabeledStmt:
			ids = append(ids, n.Label)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				ids = append(ids, namesAmong(n.Lhs)...)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				ids = append(ids, namesAmong([]ast.Expr{n.Key, n.Value})...)
			}
		}
		return true
	})
	return ids
}

func namesAmong(list []ast.Expr) (ids []*ast.Ident) {
	for _, e := range list {
		if id, ok := e.(*ast.Ident); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

// wordsOf are the words of an identifier in small letters: "late", "event" of
// lateEvent, LateEvent and late_event. An initialism is one word.
func wordsOf(name string) (words []string) {
	runes := []rune(name)
	from := 0
	for i := 1; i <= len(runes); i++ {
		if i < len(runes) && runes[i] != '_' && !startsWord(runes, i) {
			continue
		}
		if word := strings.Trim(string(runes[from:i]), "_"); word != "" {
			words = append(words, strings.ToLower(word))
		}
		from = i
	}
	return words
}

// startsWord reports whether a word begins at i: a capital behind a small
// letter, or the last of several capitals before one.
func startsWord(runes []rune, i int) bool {
	if !unicode.IsUpper(runes[i]) {
		return false
	}
	return !unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])
}
