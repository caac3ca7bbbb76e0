package lockorder

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Order are locks from the outermost to the innermost. A lock that is not listed is
// innermost: under it none is taken.
type Order []Class

// Class is a lock by the place of its declaration.
type Class struct {
	Name string
	// Several is whether a goroutine may hold several of the class.
	Several bool
	// Before are locks that may be taken under it although they are in front of it, for
	// a reason that its row gives.
	Before []string
}

var (
	row    = regexp.MustCompile("^\\| `([^`]+)` \\|(.*)\\|$")
	before = regexp.MustCompile("even before `([^`]+)`")
)

// ReadOrder reads the table below the heading Locks of a document. Its first column are
// the locks; a row that says "several at once" is of locks that one goroutine may hold
// several of, and one that says "even before" a lock allows that.
func ReadOrder(document string) (Order, error) {
	_, text, ok := strings.Cut(document, "\n## Locks\n")
	if !ok {
		return nil, fmt.Errorf("the document has no heading Locks")
	}
	text, _, _ = strings.Cut(text, "\n## ")
	var o Order
	for line := range strings.Lines(text) {
		if m := row.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			c := Class{Name: m[1], Several: strings.Contains(m[2], "several at once")}
			for _, b := range before.FindAllStringSubmatch(m[2], -1) {
				c.Before = append(c.Before, b[1])
			}
			o = append(o, c)
		}
	}
	return o, nil
}

// Stale are the listed locks that are none of the classes.
func (o Order) Stale(classes []string) (gone []string) {
	for _, c := range o {
		if !slices.Contains(classes, c.Name) {
			gone = append(gone, c.Name)
		}
	}
	return gone
}

// Judge says what is wrong with taking a lock of the class inner while one of outer is
// held: nothing if it is empty.
func (o Order) Judge(outer, inner string) string {
	at := func(name string) int { return slices.IndexFunc(o, func(c Class) bool { return c.Name == name }) }
	from, to := at(outer), at(inner)
	switch {
	case from < 0:
		return outer + " is not listed, so no lock may be taken under it"
	case from == to && !o[from].Several:
		return outer + " is taken twice, and its row does not say \"several at once\""
	case to >= 0 && to < from && !slices.Contains(o[from].Before, inner):
		return inner + " is listed in front of " + outer
	}
	return ""
}
