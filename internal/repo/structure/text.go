package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/fencepost-gpu/fencepost/internal/repo/api"
)

// rounding is what lines are rounded to in the text, so that not every change of
// the code changes it.
const rounding = 50

// measure makes the text for the module at root.
func measure(ctx context.Context, root string) (string, error) {
	h, err := load(ctx, root)
	if err != nil {
		return "", err
	}
	return h.text()
}

func (h *house) text() (string, error) {
	o := findOwners(h.pkgs)
	if gone := stale(o); len(gone) > 0 {
		return "", fmt.Errorf("layers.go names what is not there any more: %s: adapt it to the code", strings.Join(gone, ", "))
	}
	us := findUses(h.pkgs, o)
	against := us.against()
	w := &writer{}
	w.line("The structure of the product: what each number means is in the package comment and in layers.go.")
	w.line("go run ./internal/repo/structure writes this text.")
	if err := h.packages(w); err != nil {
		return "", err
	}
	w.uses(h.pkgs, us, against)
	w.line("\nUses against the order of the layers, and in how many declarations each is:\n")
	for _, u := range against {
		w.line("%v -> %v %d", u.from, u.to, us[u])
	}
	if err := w.walks(findCalls(h.pkgs, o), us); err != nil {
		return "", err
	}
	return w.String(), nil
}

// writer collects the text.
type writer struct{ strings.Builder }

func (w *writer) line(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

// table writes rows whose first column is text and the others numbers.
func (w *writer) table(title string, rows [][]string) {
	w.line("\n%s\n", title)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	width := 0
	for _, row := range rows {
		width = max(width, len(row[0]))
	}
	for _, row := range rows {
		fmt.Fprintf(t, "%-*s\t%s\t\n", width, row[0], strings.Join(row[1:], "\t"))
	}
	_ = t.Flush() // a Builder takes all
}

func numbers(name string, all ...int) []string {
	row := []string{name}
	for _, n := range all {
		row = append(row, fmt.Sprint(n))
	}
	return row
}

// packages writes the files, lines and exported names of the product's packages, and
// of the others by [group].
func (h *house) packages(w *writer) error {
	product := map[string]bool{}
	for _, p := range h.pkgs {
		product[p.ImportPath] = true
	}
	inside, outside := map[string]row{}, map[string]row{}
	for _, l := range h.all {
		r, err := figures(l)
		if err != nil {
			return err
		}
		if product[l.ImportPath] {
			inside[l.folder()] = r
		} else {
			outside[group(l.folder())] = outside[group(l.folder())].plus(r)
		}
	}
	w.figures("Packages of the product, lines rounded:", inside)
	w.figures("The rest of the module:", outside)
	return nil
}

func (w *writer) figures(title string, rows map[string]row) {
	table := [][]string{{"package", "files", "lines", "test files", "test lines", "names", "fields"}}
	var total row
	for _, name := range slices.SortedFunc(maps.Keys(rows), outsideIn) {
		table = append(table, numbers(name, rows[name].rounded()...))
		total = total.plus(rows[name])
	}
	w.table(title, append(table, numbers("all", total.rounded()...)))
}

// row are files, lines, test files, test lines, exported names and, apart from
// those, fields.
type row [6]int

func (r row) plus(o row) row {
	for i, n := range o {
		r[i] += n
	}
	return r
}

func (r row) rounded() []int {
	for _, i := range []int{1, 3} {
		r[i] = (r[i] + rounding/2) / rounding * rounding
	}
	return r[:]
}

// figures are those of a package. What it exports counts if others can import it.
func figures(l *listed) (r row, err error) {
	source, tests, err := sizes(l)
	if err != nil {
		return r, err
	}
	r = row{source.files, source.lines, tests.files, tests.lines}
	if slices.Contains(strings.Split(l.folder(), "/"), "internal") {
		return r, nil
	}
	names, err := api.Package(l.Dir)
	for _, name := range names {
		if strings.HasPrefix(name, "field ") {
			r[5]++
		} else {
			r[4]++
		}
	}
	return r, err
}

// uses writes how many there are of a package's types to each other, and between
// packages.
func (w *writer) uses(pkgs []*pkg, us uses, against []use) {
	within := func(folder string) func(use) bool {
		return func(u use) bool { return u.from.folder == folder && u.to.folder == folder }
	}
	between := func(u use) bool { return u.from.folder != u.to.folder }
	rows := [][]string{{"package", "uses", "in cycles", "against", "declarations"}}
	var total [4]int
	add := func(name string, is func(use) bool) {
		row := [4]int{0, us.inCycles(name)}
		for u := range us {
			if is(u) {
				row[0]++
			}
		}
		for _, u := range against {
			if is(u) {
				row[2]++
				row[3] += us[u]
			}
		}
		for i, n := range row {
			total[i] += n
		}
		if row[0] > 0 {
			rows = append(rows, numbers(name, row[:]...))
		}
	}
	for _, p := range slices.SortedFunc(slices.Values(pkgs), func(a, b *pkg) int { return outsideIn(a.folder(), b.folder()) }) {
		add(p.folder(), within(p.folder()))
	}
	add("between packages", between)
	w.table("Uses between types, those that are part of a cycle of uses, those against the order of the layers, and declarations with such:",
		append(rows, numbers("all", total[:]...)))
}
