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
	statHeight, rowSize = 3, 1
	panelHeight         = 9
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

// uidOf is a board's uid, by which links and other people's folders know it.
func uidOf(file string) string { return "fencepost-" + file }

func (p Panel) description() string {
	return fmt.Sprintf("%s\n\n**Bad:** %s\n\n**Then:** %s", p.Shows, p.Bad, p.Do)
}

func render(b Board) dashboard {
	d := dashboard{
		UID: uidOf(b.File), Title: b.Title, Description: b.Description, Tags: []string{"fencepost"},
		SchemaVersion: schemaVersion, Version: Version, GraphTooltip: sharedCrosshair, Refresh: "30s", Timezone: "browser",
		Time: timeRange{From: "now-1h", To: "now"}, Templating: templating{List: variables()},
		Links: []link{{Title: "Fencepost", Type: "dashboards", Icon: "external link", Tooltip: "The other boards of Fencepost", Tags: []string{"fencepost"}, IncludeVars: true, KeepTime: true}},
	}
	d.Annotations.List = []annotation{}
	for _, a := range b.Annotations {
		d.Annotations.List = append(d.Annotations.List, a.render())
	}
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
		GridPos: gridPos{W: p.Width, H: p.height()}, FieldConfig: &fieldConfig{Defaults: p.defaults(), Overrides: p.overrides()},
	}
	for i, q := range p.Queries {
		t := target{RefID: string(rune('A' + i)), Datasource: prometheus, Expr: q.Expand(), LegendFormat: q.Legend,
			EditorMode: "code", Format: "time_series", Range: true, Exemplar: q.Exemplars}
		p.adapt(&t)
		out.Targets = append(out.Targets, t)
		if q.RightUnit != "" {
			out.FieldConfig.Overrides = append(out.FieldConfig.Overrides, override{matcher{"byFrameRefID", t.RefID},
				[]property{{"unit", q.RightUnit}, {"custom.axisPlacement", "right"}}})
		}
	}
	if p.Link != "" {
		out.FieldConfig.Defaults.Links = []dataLink{{Title: "Open", URL: urlOf(p.Link)}}
	}
	p.style(&out)
	return out
}

func (p Panel) height() int {
	if p.Kind == Stat {
		return cmp.Or(p.Height, statHeight)
	}
	return cmp.Or(p.Height, panelHeight)
}

func (a Annotation) render() annotation {
	out := annotation{Name: a.Name, Datasource: prometheus, Enable: true, IconColor: a.Color, Expr: a.Query.Expand(),
		TitleFormat: a.Title, TextFormat: "{{instance}}, device {{device}}", TagKeys: "instance"}
	if a.At {
		out.UseValueForTime = "on"
	}
	return out
}

// idOf is the number that a panel has on its board, 0 if there is none.
func idOf(file, title string) int {
	for _, b := range Boards() {
		if b.File != file {
			continue
		}
		id := 0
		for _, row := range b.Rows {
			id++
			for _, p := range row.Panels {
				if id++; p.Title == title {
					return id
				}
			}
		}
	}
	return 0
}

// adapt asks for what the kind of panel draws.
func (p Panel) adapt(t *target) {
	switch p.Kind {
	case Stat: // of now: a range query shows what was, when nothing is
		t.Instant, t.Range = true, false
	case Table:
		t.Format, t.Instant, t.Range = "table", true, false
	case Heatmap:
		t.Format = "heatmap"
	}
}
