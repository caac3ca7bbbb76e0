package boards_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A reader of what @grafana/schema says in TypeScript: interfaces that extend
// others, enumerations and unions. What a type does not name is wrong; what is
// missing is not, because Grafana fills in its defaults.

// shape is a type: one of alternatives, a literal, an object, or a name with
// arguments.
type shape struct {
	anyOf   []shape
	literal any
	fields  map[string]shape
	name    string
	of      []shape
}

// schema is all declarations of a file, with those it imports from common.d.ts.
type schema map[string]shape

var token = regexp.MustCompile(`"[^"]*"|'[^']*'|-?[0-9.]+|[A-Za-z_$][\w$.]*|[{}()<>|,;:?=\[\]]`)

type reader struct{ tokens []string }

func (r *reader) next() string {
	first := r.tokens[0]
	r.tokens = r.tokens[1:]
	return first
}

func (r *reader) take(want string) bool {
	if len(r.tokens) > 0 && r.tokens[0] == want {
		r.tokens = r.tokens[1:]
		return true
	}
	return false
}

func readSchema(t *testing.T, plugin string) schema {
	t.Helper()
	s := schema{}
	for _, file := range []string{"common", "dashboard", plugin} {
		text, err := os.ReadFile(filepath.Join("testdata", "grafana-"+grafanaVersion, file+".d.ts"))
		if err != nil {
			t.Fatal(err)
		}
		r := &reader{token.FindAllString(string(text), -1)}
		own := schema{}
		for len(r.tokens) > 0 {
			r.declaration(own)
		}
		for name, is := range own {
			if file == plugin && (name == "Options" || name == "FieldConfig") {
				name = "panel." + name // there is a FieldConfig in dashboard.d.ts too
			}
			s[name] = is
		}
	}
	return s
}

func (r *reader) declaration(s schema) {
	switch word := r.next(); word {
	case "interface":
		name := r.next()
		all := []shape{}
		if r.take("extends") {
			for all = append(all, r.primary()); r.take(","); {
				all = append(all, r.primary())
			}
		}
		own := r.primary()
		own.of = all // what it extends
		s[name] = own
	case "enum":
		name, values := r.next(), shape{}
		for r.take("{"); !r.take("}"); r.take(",") {
			member := r.next()
			r.take("=")
			value := shape{literal: literalOf(r.next())}
			values.anyOf = append(values.anyOf, value)
			s[name+"."+member] = value
		}
		s[name] = values
	case "type":
		name := r.next()
		r.take("=")
		s[name] = r.union()
		r.take(";")
	case "export", "declare":
	default:
		panic("unknown word " + word)
	}
}

func (r *reader) union() shape {
	all := []shape{r.primary()}
	for r.take("|") {
		all = append(all, r.primary())
	}
	if len(all) == 1 {
		return all[0]
	}
	return shape{anyOf: all}
}

func (r *reader) primary() (s shape) {
	switch word := r.next(); {
	case word == "(":
		s = r.union()
		r.take(")")
	case word == "{":
		s.fields = map[string]shape{}
		for !r.take("}") {
			name := strings.Trim(r.next(), `"'`)
			r.take("?")
			r.take(":")
			s.fields[name] = r.union()
			r.take(";")
		}
	case strings.ContainsAny(word[:1], `"'-0123456789`):
		s.literal = literalOf(word)
	default:
		s.name = word
		if r.take("<") {
			for s.of = append(s.of, r.union()); r.take(","); {
				s.of = append(s.of, r.union())
			}
			r.take(">")
		}
	}
	for r.take("[") {
		r.take("]")
		s = shape{name: "Array", of: []shape{s}}
	}
	return s
}

func literalOf(word string) any {
	if n, err := strconv.ParseFloat(word, 64); err == nil {
		return n
	}
	return strings.Trim(word, `"'`)
}

// named finds a declaration, whatever it is imported as.
func (s schema) named(name string) (shape, bool) {
	for _, prefix := range []string{"common.", "ui."} {
		if bare, imported := strings.CutPrefix(name, prefix); imported {
			name = bare
		}
	}
	is, there := s[name]
	return is, there
}

// members are the fields of an object with those that it inherits.
func (s schema) members(of shape) map[string]shape {
	all := map[string]shape{}
	for _, parent := range of.of {
		is, _ := s.named(parent.name)
		maps.Copy(all, s.members(is))
	}
	maps.Copy(all, of.fields)
	return all
}

// faults are what of a value is not as a type says.
func (s schema) faults(path string, value any, is shape) []string {
	switch {
	case is.anyOf != nil:
		return s.faultsOfUnion(path, value, is)
	case is.literal != nil:
		return unless(value == is.literal, "%s is %v, not %v", path, value, is.literal)
	case is.fields != nil:
		return s.faultsOfObject(path, value, is)
	}
	return s.faultsOfNamed(path, value, is)
}

func (s schema) faultsOfUnion(path string, value any, is shape) []string {
	var best []string
	for i, one := range is.anyOf {
		found := s.faults(path, value, one)
		if len(found) == 0 {
			return nil
		}
		if i == 0 || len(found) < len(best) {
			best = found
		}
	}
	return best
}

func (s schema) faultsOfObject(path string, value any, is shape) (found []string) {
	object, ok := value.(map[string]any)
	if !ok {
		return []string{fmt.Sprintf("%s is %v, not an object", path, value)}
	}
	members := s.members(is)
	for name, v := range object {
		if member, known := members[name]; known {
			found = append(found, s.faults(path+"."+name, v, member)...)
		} else {
			found = append(found, fmt.Sprintf("%s has no %q", path, name))
		}
	}
	return found
}

func (s schema) faultsOfNamed(path string, value any, is shape) (found []string) {
	switch is.name {
	case "unknown", "any":
		return nil
	case "null":
		return unless(value == nil, "%s is %v, not null", path, value)
	case "string":
		_, ok := value.(string)
		return unless(ok, "%s is %v, no string", path, value)
	case "number":
		_, ok := value.(float64)
		return unless(ok, "%s is %v, no number", path, value)
	case "boolean":
		_, ok := value.(bool)
		return unless(ok, "%s is %v, no boolean", path, value)
	case "Array":
		list, ok := value.([]any)
		for i, v := range list {
			found = append(found, s.faults(fmt.Sprintf("%s[%d]", path, i), v, is.of[0])...)
		}
		return append(found, unless(ok, "%s is %v, no list", path, value)...)
	case "Record":
		object, ok := value.(map[string]any)
		for name, v := range object {
			found = append(found, s.faults(path+"."+name, v, is.of[1])...)
		}
		return append(found, unless(ok, "%s is %v, no object", path, value)...)
	}
	one, known := s.named(is.name)
	if !known {
		return []string{fmt.Sprintf("%s: there is no type %s", path, is.name)}
	}
	return s.faults(path, value, one)
}

func unless(ok bool, text string, args ...any) []string {
	if ok {
		return nil
	}
	return []string{fmt.Sprintf(text, args...)}
}

func sorted(found []string) []string { slices.Sort(found); return found }
