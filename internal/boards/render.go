package boards

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
)

// Grafana's numbers.
const (
	gridColumns         = 24
	onTimeRangeChange   = 2
	sharedCrosshair     = 1
	alphabetical        = 1
	statHeight, rowSize = 4, 1
	panelHeight         = 8
)

var prometheus = source{Type: "prometheus", UID: "${datasource}"}

const (
	matchProcess = `job=~"$job", instance=~"$instance"`
	matchDevice  = matchProcess + `, device=~"$device"`
)

// JSON is the file of a board.
func JSON(b Board) ([]byte, error) {
	var text bytes.Buffer
	out := json.NewEncoder(&text)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	err := out.Encode(render(b))
	return text.Bytes(), err
}

// Expand is the query that Grafana is given.
func (q Query) Expand() string {
	return strings.NewReplacer("{@process", "{"+matchProcess, "{@", "{"+matchDevice).Replace(q.Expr)
}

func (p Panel) description() string {
	return fmt.Sprintf("%s\n\n**Bad:** %s\n\n**Then:** %s", p.Shows, p.Bad, p.Do)
}

func render(b Board) dashboard {
	d := dashboard{
		UID: "fencepost-" + b.File, Title: b.Title, Description: b.Description, Tags: []string{"fencepost"},
		SchemaVersion: schemaVersion, GraphTooltip: sharedCrosshair, Refresh: "30s", Timezone: "browser",
		Time: timeRange{From: "now-1h", To: "now"}, Templating: templating{List: variables()},
		Links: []link{{Title: "Fencepost", Type: "dashboards", Icon: "external link", Tooltip: "The other boards of Fencepost", Tags: []string{"fencepost"}, IncludeVars: true, KeepTime: true}},
	}
	d.Annotations.List = []struct{}{}
	y := 0
	for _, row := range b.Rows {
		y = d.addRow(row, y)
	}
	for i := range d.Panels {
		d.Panels[i].ID = i + 1
	}
	return d
}

// addRow puts a heading and its panels from line y on, and returns the line
// behind them.
func (d *dashboard) addRow(row Row, y int) int {
	d.Panels = append(d.Panels, panel{Type: "row", Title: row.Title, GridPos: gridPos{Y: y, W: gridColumns, H: rowSize}, Collapsed: new(bool), Panels: &[]panel{}})
	x, line, height := 0, y+rowSize, 0
	for _, p := range row.Panels {
		if x+p.Width > gridColumns {
			x, line, height = 0, line+height, 0
		}
		out := p.render()
		out.GridPos.X, out.GridPos.Y = x, line
		d.Panels = append(d.Panels, out)
		x, height = x+p.Width, max(height, out.GridPos.H)
	}
	return line + height
}

func (p Panel) render() panel {
	out := panel{
		Type: string(p.Kind), Title: p.Title, Description: p.description(), Datasource: &prometheus,
		GridPos: gridPos{W: p.Width, H: panelHeight}, FieldConfig: &fieldConfig{Defaults: p.defaults(), Overrides: p.overrides()},
	}
	for i, q := range p.Queries {
		t := target{RefID: string(rune('A' + i)), Datasource: prometheus, Expr: q.Expand(), LegendFormat: cmp.Or(q.Legend, "__auto"),
			EditorMode: "code", Format: "time_series", Range: true, Exemplar: q.Exemplars}
		p.adapt(&t)
		out.Targets = append(out.Targets, t)
		if q.RightUnit != "" {
			out.FieldConfig.Overrides = append(out.FieldConfig.Overrides, override{matcher{"byFrameRefID", t.RefID},
				[]property{{"unit", q.RightUnit}, {"custom.axisPlacement", "right"}}})
		}
	}
	p.style(&out)
	return out
}

// adapt asks for what the kind of panel draws.
func (p Panel) adapt(t *target) {
	switch p.Kind {
	case Table:
		t.Format, t.Instant, t.Range = "table", true, false
	case Heatmap:
		t.Format = "heatmap"
	}
}
