package doctor

import (
	"fmt"
	"io"
	"strings"

	"github.com/fencepost-gpu/fencepost/internal/terminal"
)

// Layout of the text: a label, then the value from labelWidth on, wrapped at
// pageWidth.
const (
	labelWidth = 18
	pageWidth  = 80
)

// printer writes lines of a label and a value.
type printer struct{ out io.Writer }

func (p printer) title(format string, args ...any) { terminal.Fprintf(p.out, format+"\n", args...) }

// line writes a value beside its label, on as many lines as it takes. Nothing
// is written for an empty value. Line ends are spaces to it, and what else does
// not print is escaped.
func (p printer) line(label, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	for _, row := range wrap(text, pageWidth-labelWidth) {
		terminal.Fprintf(p.out, "%-*s%s\n", labelWidth, cut("  "+label), row)
		label = ""
	}
}

// cut keeps a label from running into its value.
func cut(label string) string {
	if len(label) < labelWidth {
		return label
	}
	return label[:labelWidth-1]
}

// wrap breaks text at spaces. A word longer than the width keeps a line of its
// own, unbroken, so that it can be copied.
func wrap(text string, width int) []string {
	var rows []string
	row := ""
	for _, word := range strings.Fields(text) {
		if row != "" && len(row)+1+len(word) > width {
			rows = append(rows, row)
			row = ""
		}
		if row != "" {
			row += " "
		}
		row += word
	}
	if row != "" {
		rows = append(rows, row)
	}
	return rows
}
