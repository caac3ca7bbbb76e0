package boards

import (
	"fmt"
	"strings"
)

// neutral is the colour of what is neither good nor bad. Without thresholds of
// our own Grafana would paint everything above 80 red.
const neutral = "blue"

func (p Panel) defaults() fieldDefaults {
	d := fieldDefaults{Unit: p.Unit, NoValue: p.none(), Color: colorMode{"palette-classic"}, Thresholds: steps(neutral, p.Levels), Mappings: p.mappings()}
	if len(p.Levels) > 0 && p.Levels[0].Series == "" {
		d.Thresholds = steps("green", p.Levels)
	}
	if (p.Kind == TimeSeries || p.Kind == Stat) && !p.Log && !p.Signed {
		d.Min = new(float64)
	}
	return d
}

func (p Panel) none() string {
	if p.None == "" {
		return "no runtime"
	}
	return p.None
}

// mappings give values their names.
func (p Panel) mappings() []mapping {
	if len(p.States) == 0 {
		return nil
	}
	m := mapping{Type: "value", Options: map[string]mappedValue{}}
	for i, s := range p.States {
		m.Options[s.Value] = mappedValue{s.Text, s.Color, i}
	}
	return []mapping{m}
}

// steps are the colours from the lowest on.
func steps(base string, levels []Level) thresholds {
	t := thresholds{Mode: "absolute", Steps: []step{{nil, base}}}
	for _, l := range levels {
		if l.Series == "" {
			t.Steps = append(t.Steps, step{&l.From, l.Color})
		}
	}
	return t
}

// overrides are the colours of single series.
func (p Panel) overrides() []override {
	all := []override{}
	for _, l := range p.Levels {
		if l.Series != "" {
			all = append(all, override{matcher{"byName", l.Series}, []property{{"thresholds", steps(neutral, []Level{{From: l.From, Color: l.Color}})}}})
		}
	}
	for _, c := range p.Columns {
		if c.Unit != "" {
			all = append(all, override{matcher{"byName", c.Heading}, []property{{"unit", c.Unit}}})
		}
	}
	return all
}

// style is how the kind of panel looks.
func (p Panel) style(out *panel) {
	switch p.Kind {
	case Stat:
		p.styleStat(out)
	case TimeSeries:
		p.styleTimeSeries(out)
	case StateTimeline:
		out.FieldConfig.Defaults.Color.Mode = "thresholds"
		out.FieldConfig.Defaults.Custom = map[string]any{"fillOpacity": 70, "lineWidth": 0}
		out.Options = map[string]any{"mergeValues": true, "rowHeight": 0.9, "showValue": "auto", "alignValue": "left",
			"legend": map[string]any{"displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": []string{}}, "tooltip": tooltip("single")}
	case Table:
		out.FieldConfig.Defaults.Custom = map[string]any{"align": "auto", "inspect": false, "cellOptions": map[string]any{"type": p.cells()}}
		out.Options = map[string]any{"frameIndex": 0, "showHeader": true, "cellHeight": "sm"}
		out.Transformations = p.columns()
	case Heatmap:
		out.Options = map[string]any{
			"calculate": false, "cellGap": 1, "showValue": "never", "legend": map[string]any{"show": true}, "tooltip": map[string]any{"mode": "single", "yHistogram": false, "showColorScale": false},
			"exemplars": map[string]any{"color": "rgba(255,0,255,0.7)"}, "rowsFrame": map[string]any{"layout": "auto", "value": "calls a second"}, "filterValues": map[string]any{"le": 1e-9},
			"yAxis": map[string]any{"unit": Seconds, "axisPlacement": "left", "reverse": false}, "cellValues": map[string]any{"unit": p.Unit},
			"color": map[string]any{"mode": "scheme", "scheme": "Spectral", "fill": "dark-orange", "scale": "exponential", "exponent": 0.5, "steps": 64, "reverse": false},
		}
	}
}

func tooltip(mode string) map[string]any { return map[string]any{"mode": mode, "sort": "desc"} }

func (p Panel) styleStat(out *panel) {
	out.FieldConfig.Defaults.Color.Mode = "thresholds"
	name := "value"
	if len(p.Queries) > 1 || strings.Contains(p.Queries[0].Legend, "{{") {
		name = "value_and_name"
	}
	out.Options = map[string]any{"reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}, "fields": "", "values": false}, "orientation": "auto",
		"colorMode": "value", "graphMode": "none", "justifyMode": "auto", "textMode": name, "wideLayout": true, "showPercentChange": false, "percentChangeColorMode": "standard"}
}

func (p Panel) styleTimeSeries(out *panel) {
	custom := map[string]any{"fillOpacity": 10, "showPoints": "never", "spanNulls": false}
	if p.Stacked {
		custom["stacking"] = map[string]any{"mode": "normal", "group": "A"}
		custom["fillOpacity"] = 40
	}
	if p.Log {
		custom["scaleDistribution"] = map[string]any{"type": "log", "log": 10}
		custom["fillOpacity"] = 0
	}
	out.FieldConfig.Defaults.Custom = custom
	legend := map[string]any{"displayMode": "table", "placement": "bottom", "showLegend": true, "calcs": []string{"lastNotNull", "max", "mean"}, "sortBy": "Max", "sortDesc": true}
	if p.Width == gridColumns {
		legend["placement"] = "right"
	}
	out.Options = map[string]any{"legend": legend, "tooltip": tooltip("multi")}
}

// columns leaves the columns that are named, in their order, under their
// headings.
func (p Panel) columns() []transformation {
	names, order, rename := []string{}, map[string]any{}, map[string]any{}
	for i, c := range p.Columns {
		names, order[c.Label], rename[c.Label] = append(names, c.Label), i, c.Heading
	}
	all := []transformation{}
	if len(p.Queries) > 1 {
		all = append(all, transformation{"merge", map[string]any{}})
	}
	return append(all, transformation{"filterFieldsByName", map[string]any{"include": map[string]any{"names": names}}},
		transformation{"organize", map[string]any{"excludeByName": map[string]any{}, "indexByName": order, "renameByName": rename}})
}

// cells is how a table shows its values: in their colours if they have some.
func (p Panel) cells() string {
	if len(p.States) > 0 {
		return "color-text"
	}
	return "auto"
}

// urlOf is where a click on a value of a panel leads, with the choice and the
// time range of the board.
func urlOf(to string) string {
	const kept = "${__url_time_range}&${__all_variables}"
	file, title, _ := strings.Cut(to, "#")
	if title == "" {
		return fmt.Sprintf("/d/%s?%s", uidOf(file), kept)
	}
	return fmt.Sprintf("/d/%s?viewPanel=%d&%s", uidOf(file), idOf(file, title), kept)
}
