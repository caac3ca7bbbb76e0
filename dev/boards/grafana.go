package boards

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/heatmap"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

const (
	// schemaVersion is that of Grafana 12 and 13; older ones migrate what they load.
	schemaVersion = 42
	// gridColumns is how wide Grafana's grid is; the others are heights.
	gridColumns, rowHeight, statHeight, panelHeight = 24, 1, 3, 9
	// neutral is the colour of what is neither good nor bad. Without thresholds
	// of our own Grafana would paint everything above 80 red.
	neutral = "blue"
	// columnWidth is how many pixels a column of a table has at least, or the last would
	// be cut off; below shortText it needs no more than it asks for.
	columnWidth, shortText = 60.0, 100

	matchProcess = `job=~"$job", instance=~"$instance"`
	matchDevice  = matchProcess + `, device=~"$device"`
)

// object is a JSON object.
type object = map[string]any

var datasource = &common.DataSourceRef{Type: new("prometheus"), Uid: new("${datasource}")}

// Expand is the query that Grafana is given.
func (q Query) Expand() string {
	return strings.NewReplacer("{@process", "{"+matchProcess, "{@", "{"+matchDevice).Replace(q.Expr)
}

// JSON is the file of a board. Two things are not as the SDK has them: the link
// of a value, for which it has the fields of a dashboard's, and annotations,
// whose useValueForTime Grafana's editor does not write as a boolean.
func JSON(b Board) ([]byte, error) {
	text, err := json.Marshal(render(b))
	if err != nil {
		return nil, err
	}
	var d object
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, err
	}
	trimLinks(d["panels"].([]any))
	marks := []object{}
	for _, a := range b.Annotations {
		marks = append(marks, a.render())
	}
	d["annotations"] = object{"list": marks}
	var out bytes.Buffer
	to := json.NewEncoder(&out)
	to.SetIndent("", "  ")
	to.SetEscapeHTML(false)
	err = to.Encode(d)
	return out.Bytes(), err
}

// trimLinks leaves of the links of values what they have.
func trimLinks(panels []any) {
	for _, p := range panels {
		folded, _ := p.(object)["panels"].([]any)
		trimLinks(folded)
		config, _ := p.(object)["fieldConfig"].(object) // rows have none
		defaults, _ := config["defaults"].(object)
		links, _ := defaults["links"].([]any)
		for _, l := range links {
			maps.DeleteFunc(l.(object), func(name string, _ any) bool { return name != "title" && name != "url" && name != "targetBlank" })
		}
	}
}

// uidOf is a board's uid, by which links and other people's folders know it.
func uidOf(file string) string { return "fencepost-" + file }

func render(b Board) dashboard.Dashboard {
	d := dashboard.Dashboard{
		Uid: new(uidOf(b.File)), Title: &b.Title, Description: &b.Description, Tags: []string{"fencepost"}, Editable: new(false),
		SchemaVersion: schemaVersion, Version: new(uint32(Version)), GraphTooltip: new(dashboard.DashboardCursorSyncCrosshair), Refresh: new("30s"), Timezone: new("browser"),
		Time: &dashboard.DashboardDashboardTime{From: "now-1h", To: "now"}, Templating: dashboard.DashboardDashboardTemplating{List: variables()},
		Links: []dashboard.DashboardLink{{Title: "Fencepost", Type: dashboard.DashboardLinkTypeDashboards, Icon: "external link", Tooltip: "The other boards of Fencepost",
			Tags: []string{"fencepost"}, IncludeVars: true, KeepTime: true}},
	}
	x, y, height, id := 0, 0, 0, uint32(0)
	var folded *dashboard.RowPanel
	for _, p := range b.Panels {
		if p.Row != "" {
			if y += height; folded != nil {
				y = int(folded.GridPos.Y) + rowHeight
			}
			id++
			heading := &dashboard.RowPanel{Type: "row", Id: id, Title: &p.Row, Collapsed: p.Fold, GridPos: &dashboard.GridPos{Y: uint32(y), W: gridColumns, H: rowHeight}, Panels: []dashboard.Panel{}}
			d.Panels = append(d.Panels, dashboard.PanelOrRowPanel{RowPanel: heading})
			x, y, height, folded = 0, y+rowHeight, 0, nil
			if p.Fold {
				folded = heading
			}
		}
		if x+p.Width > gridColumns {
			x, y, height = 0, y+height, 0
		}
		id++
		out := p.render()
		out.Id, out.GridPos = new(id), &dashboard.GridPos{X: uint32(x), Y: uint32(y), W: uint32(p.Width), H: uint32(p.height())}
		if folded != nil {
			folded.Panels = append(folded.Panels, out)
		} else {
			d.Panels = append(d.Panels, dashboard.PanelOrRowPanel{Panel: &out})
		}
		x, height = x+p.Width, max(height, p.height())
	}
	return d
}

// variables choose what a board shows. Each of the last three offers what the
// ones before it leave; none but the datasource is needed to see everything.
func variables() []dashboard.VariableModel {
	text := func(s string) dashboard.StringOrArrayOfString { return dashboard.StringOrArrayOfString{String: &s} }
	return []dashboard.VariableModel{
		{Name: "datasource", Label: new("Datasource"), Type: dashboard.VariableTypeDatasource, Query: &dashboard.StringOrMap{String: new("prometheus")},
			Refresh: new(dashboard.VariableRefreshOnDashboardLoad), Multi: new(false), IncludeAll: new(false),
			Current: &dashboard.VariableOption{Text: text("Prometheus"), Value: text("prometheus")}},
		choice("job", "Job", ``),
		choice("instance", "Instance", `job=~"$job"`),
		choice("device", "Device", matchProcess),
	}
}

// choice offers the values that a label has where the matchers hold. It is
// looked up anew when the time range changes: a process that is gone had
// series then.
func choice(name, label, where string) dashboard.VariableModel {
	list := func(s string) dashboard.StringOrArrayOfString {
		return dashboard.StringOrArrayOfString{ArrayOfString: []string{s}}
	}
	query := object{"query": "label_values(gpumem_memory_bytes{" + where + "}, " + name + ")", "refId": "PrometheusVariableQueryEditor-VariableQuery"}
	return dashboard.VariableModel{
		Name: name, Label: &label, Type: dashboard.VariableTypeQuery, Datasource: datasource, Query: &dashboard.StringOrMap{Map: query},
		Refresh: new(dashboard.VariableRefreshOnTimeRangeChanged), Multi: new(true), IncludeAll: new(true), AllValue: new(".+"), Sort: new(dashboard.VariableSortAlphabeticalAsc),
		Current: &dashboard.VariableOption{Text: list("All"), Value: list("$__all")},
	}
}

func (a Annotation) render() object {
	out := object{"name": a.Name, "datasource": datasource, "enable": true, "hide": false, "iconColor": a.Color, "expr": a.Query.Expand(),
		"titleFormat": a.Title, "textFormat": "{{instance}}, device {{device}}", "tagKeys": "instance"}
	if a.At {
		out["useValueForTime"] = "on"
	}
	return out
}

func (p Panel) height() int {
	if p.Kind == Stat {
		return cmp.Or(p.Height, statHeight)
	}
	return cmp.Or(p.Height, panelHeight)
}

func (p Panel) render() dashboard.Panel {
	config := &dashboard.FieldConfigSource{Defaults: p.defaults(), Overrides: p.overrides()}
	if p.Kind == TimeSeries || p.Kind == Table { // what the whole panel says without data is not what one of its series or cells lacks
		config.Overrides = append([]dashboard.DashboardFieldConfigSourceOverrides{override("byRegexp", "/.*/", "noValue", "–")}, config.Overrides...)
	}
	out := dashboard.Panel{
		Type: string(p.Kind), Title: &p.Title, Datasource: datasource, FieldConfig: config,
		Description: new(fmt.Sprintf("%s\n\n**Bad:** %s\n\n**Then:** %s", p.Shows, p.Bad, p.Do)),
	}
	format := map[Kind]prometheus.PromQueryFormat{Table: prometheus.PromQueryFormatTable, Heatmap: prometheus.PromQueryFormatHeatmap}[p.Kind]
	now := p.Kind == Stat || p.Kind == Table // a range query shows what was, when nothing is
	for i, q := range p.Queries {
		letter := string(rune('A' + i))
		out.Targets = append(out.Targets, prometheus.Dataquery{RefId: &letter, Datasource: datasource, Expr: q.Expand(), LegendFormat: &q.Legend,
			EditorMode: new(prometheus.QueryEditorModeCode), Format: new(cmp.Or(format, prometheus.PromQueryFormatTimeSeries)), Instant: new(now), Range: new(!now), Exemplar: &q.Exemplars})
		if q.RightUnit != "" {
			config.Overrides = append(config.Overrides, override("byFrameRefID", letter, "unit", q.RightUnit, "custom.axisPlacement", common.AxisPlacementRight))
		}
	}
	p.style(&out)
	return out
}

func (p Panel) defaults() dashboard.FieldConfig {
	d := dashboard.FieldConfig{Unit: &p.Unit, NoValue: new(cmp.Or(p.None, "no runtime")), Color: &dashboard.FieldColor{Mode: dashboard.FieldColorModeIdPaletteClassic},
		Thresholds: steps(p.Levels), Mappings: mappings(p.States)}
	switch p.Kind {
	case Stat:
		d.Color.Mode = dashboard.FieldColorModeIdThresholds
	case StateTimeline: // of thresholds Grafana would write the ranges, and merge what has one colour
		d.Color = &dashboard.FieldColor{Mode: dashboard.FieldColorModeIdFixed, FixedColor: new("text")}
	case Table:
		d.Unit = nil // or labels that are numbers would have it
	}
	if (p.Kind == TimeSeries || p.Kind == Stat) && !p.Log && !p.Signed {
		d.Min = new(0.0)
	}
	if p.Link != "" {
		d.Links = []dashboard.DashboardLink{{Title: "Open", Url: new(urlOf(p.Link))}}
	}
	return d
}

func mappings(states []State) []dashboard.ValueMapping {
	if len(states) == 0 {
		return nil
	}
	values := map[string]dashboard.ValueMappingResult{}
	for i, s := range states {
		values[s.Value] = dashboard.ValueMappingResult{Text: &s.Text, Color: &s.Color, Index: new(int32(i))}
	}
	return []dashboard.ValueMapping{{ValueMap: &dashboard.ValueMap{Type: dashboard.MappingTypeValueToText, Options: values}}}
}

// steps are the colours of all series from the lowest on. What is below 0, and what
// is not there, is neutral.
func steps(levels []Level) *dashboard.ThresholdsConfig {
	t := &dashboard.ThresholdsConfig{Mode: dashboard.ThresholdsModeAbsolute, Steps: []dashboard.Threshold{{Color: neutral}}}
	for _, l := range levels {
		if l.Series != "" {
			continue
		}
		if len(t.Steps) == 1 && l.From > 0 {
			t.Steps = append(t.Steps, dashboard.Threshold{Value: new(0.0), Color: "green"})
		}
		t.Steps = append(t.Steps, dashboard.Threshold{Value: &l.From, Color: l.Color})
	}
	return t
}

// overrides are the colours of single series and what columns have of their own.
func (p Panel) overrides() []dashboard.DashboardFieldConfigSourceOverrides {
	all := []dashboard.DashboardFieldConfigSourceOverrides{}
	for _, l := range p.Levels {
		switch {
		case l.Series != "" && p.Kind == TimeSeries:
			all = append(all, override("byName", l.Series, "color", dashboard.FieldColor{Mode: dashboard.FieldColorModeIdFixed, FixedColor: &l.Color}))
		case l.Series != "":
			all = append(all, override("byName", l.Series, "thresholds", steps([]Level{{From: l.From, Color: l.Color}})))
		}
	}
	for _, c := range p.Columns {
		if properties := c.properties(); len(properties) > 0 {
			all = append(all, override("byName", c.Heading, properties...))
		}
	}
	return all
}

func (c Column) properties() (all []any) {
	if c.Unit != "" {
		all = append(all, "unit", c.Unit)
	}
	switch {
	case c.Label == "device": // a small number
		all = append(all, "custom.width", columnWidth)
	case c.Width > 0 && !c.Gauge && (c.Unit != "" || c.States != nil || c.Width < shortText): // what is left is for long texts
		all = append(all, "custom.width", c.Width)
	case c.Width > 0:
		all = append(all, "custom.minWidth", c.Width)
	}
	if c.Gauge {
		all = append(all, "min", 0, "max", 1, "thresholds", steps(c.Levels), "color", dashboard.FieldColor{Mode: dashboard.FieldColorModeIdThresholds},
			"custom.cellOptions", common.TableBarGaugeCellOptions{Type: common.TableCellDisplayModeGauge, Mode: new(common.BarGaugeDisplayModeBasic), ValueDisplayMode: new(common.BarGaugeValueModeText)})
	}
	if len(c.States) > 0 {
		all = append(all, "mappings", mappings(c.States), "custom.cellOptions", common.TableColorTextCellOptions{Type: common.TableCellDisplayModeColorText})
	}
	if c.Hidden {
		all = append(all, "custom.hidden", true)
	}
	links := []object{}
	for _, l := range c.Links {
		links = append(links, object{"title": l.Title, "url": l.URL, "targetBlank": strings.HasPrefix(l.URL, "http")})
	}
	if len(links) > 0 {
		all = append(all, "links", links)
	}
	return all
}

// override is of what the matcher picks. Its properties are pairs of a name and
// a value.
func override(matcher, of string, properties ...any) dashboard.DashboardFieldConfigSourceOverrides {
	o := dashboard.DashboardFieldConfigSourceOverrides{Matcher: dashboard.MatcherConfig{Id: matcher, Options: of}}
	for i := 0; i+1 < len(properties); i += 2 {
		o.Properties = append(o.Properties, dashboard.DynamicConfigValue{Id: properties[i].(string), Value: properties[i+1]})
	}
	return o
}

// style is how the kind of panel looks.
func (p Panel) style(out *dashboard.Panel) {
	custom := &out.FieldConfig.Defaults.Custom
	switch p.Kind {
	case Stat:
		name := common.BigValueTextModeValue
		if len(p.Queries) > 1 || strings.Contains(p.Queries[0].Legend, "{{") {
			name = common.BigValueTextModeValueAndName
		}
		out.Options = stat.Options{ReduceOptions: common.ReduceDataOptions{Calcs: []string{"lastNotNull"}, Fields: new(""), Values: new(false)}, Orientation: common.VizOrientationAuto,
			ColorMode: common.BigValueColorModeValue, GraphMode: common.BigValueGraphModeNone, JustifyMode: common.BigValueJustifyModeAuto, TextMode: name, WideLayout: false,
			PercentChangeColorMode: common.PercentChangeColorModeStandard}
	case TimeSeries:
		*custom = p.lines()
		legend := common.VizLegendOptions{DisplayMode: common.LegendDisplayModeTable, Placement: common.LegendPlacementBottom, ShowLegend: true,
			Calcs: []string{"last", "max"}, SortBy: new("Max"), SortDesc: new(true)}
		if p.Width >= gridColumns/2 { // below, a legend of five leaves no height to draw in
			legend.Placement = common.LegendPlacementRight
		}
		out.Options = timeseries.Options{Legend: legend, Tooltip: common.VizTooltipOptions{Mode: common.TooltipDisplayModeMulti, Sort: common.SortOrderDescending}}
	case StateTimeline:
		// An empty answer has a frame without fields: of that it would say that it has no time.
		out.Transformations = []dashboard.DataTransformerConfig{{Id: "filterFieldsByName", Options: object{"include": object{"pattern": ".*"}}}}
		*custom = statetimeline.FieldConfig{FillOpacity: new(uint32(70)), LineWidth: new(uint32(0))}
		out.Options = statetimeline.Options{MergeValues: new(true), RowHeight: 0.9, ShowValue: common.VisibilityModeAuto, AlignValue: new(common.TimelineValueAlignmentLeft),
			Legend:  common.VizLegendOptions{DisplayMode: common.LegendDisplayModeList, Placement: common.LegendPlacementBottom, ShowLegend: true, Calcs: []string{}},
			Tooltip: common.VizTooltipOptions{Mode: common.TooltipDisplayModeSingle, Sort: common.SortOrderDescending}}
	case Table:
		*custom = table.FieldConfig{Align: common.FieldTextAlignmentAuto, MinWidth: new(columnWidth),
			CellOptions: &common.TableCellOptions{TableAutoCellOptions: &common.TableAutoCellOptions{Type: common.TableCellDisplayModeAuto}}}
		options := table.Options{ShowHeader: true, CellHeight: new(common.TableCellHeightSm)}
		for _, heading := range p.Largest {
			options.SortBy = append(options.SortBy, common.TableSortByFieldState{DisplayName: heading, Desc: new(true)})
		}
		out.Options = options
		out.Transformations = p.columns()
	case Heatmap:
		out.Options = heatmap.Options{
			Calculate: new(false), CellGap: new(uint8(1)), ShowValue: common.VisibilityModeNever, Legend: heatmap.HeatmapLegend{Show: true}, Exemplars: heatmap.ExemplarConfig{Color: "rgba(255,0,255,0.7)"},
			Tooltip:   heatmap.HeatmapTooltip{Mode: common.TooltipDisplayModeSingle, YHistogram: new(false), ShowColorScale: new(false)},
			RowsFrame: &heatmap.RowsHeatmapOptions{Layout: new(common.HeatmapCellLayoutAuto), Value: new("calls a second")}, FilterValues: &heatmap.FilterValueRange{Le: new(float32(1e-9))},
			YAxis: heatmap.YAxisConfig{Unit: new(units.Seconds), AxisPlacement: new(common.AxisPlacementLeft), Reverse: new(false)}, CellValues: &heatmap.CellValues{Unit: &p.Unit},
			Color: heatmap.HeatmapColorOptions{Mode: new(heatmap.HeatmapColorModeScheme), Scheme: "Spectral", Fill: "dark-orange", Scale: new(heatmap.HeatmapColorScaleExponential), Exponent: 0.5, Steps: 64},
		}
	}
}

func (p Panel) lines() timeseries.FieldConfig {
	c := timeseries.FieldConfig{FillOpacity: new(10.0), AxisSoftMax: new(1.0), ShowPoints: new(common.VisibilityModeNever), SpanNulls: &common.BoolOrFloat64{Bool: new(false)}}
	if p.Stacked {
		c.Stacking, c.FillOpacity = &common.StackingConfig{Mode: new(common.StackingModeNormal), Group: new("A")}, new(40.0)
	}
	if p.Log {
		c.AxisSoftMax = nil // Grafana has none on such an axis
		c.ScaleDistribution, c.FillOpacity = &common.ScaleDistributionConfig{Type: common.ScaleDistributionLog, Log: new(10.0)}, new(0.0)
	}
	return c
}

// columns leaves the columns that are named, in their order, under their
// headings. Of several queries rows with the same labels become one, and if none has
// any, nothing is left, so that the panel says so: merged alone they would be
// headings without a word.
func (p Panel) columns() []dashboard.DataTransformerConfig {
	names, order, rename, group := []string{}, object{}, object{}, object{}
	for i, c := range p.Columns {
		name := c.Label
		if len(p.Queries) > 1 && strings.HasPrefix(name, "Value") {
			group[name] = object{"operation": "aggregate", "aggregations": []string{"lastNotNull"}}
			name += " (lastNotNull)"
		} else {
			group[name] = object{"operation": "groupby", "aggregations": []string{}}
		}
		names, order[name], rename[name] = append(names, name), i, c.Heading
	}
	organize := dashboard.DataTransformerConfig{Id: "organize", Options: object{"excludeByName": object{}, "indexByName": order, "renameByName": rename}}
	if len(p.Queries) == 1 {
		return []dashboard.DataTransformerConfig{{Id: "filterFieldsByName", Options: object{"include": object{"names": names}}}, organize}
	}
	return []dashboard.DataTransformerConfig{{Id: "merge", Options: object{}}, {Id: "groupBy", Options: object{"fields": group}}, organize}
}

// urlOf is where a click on a value of a panel leads, with the choice and the
// time range of the board: to a board, or after a # to one of its panels.
func urlOf(to string) string {
	const kept = "${__url_time_range}&${__all_variables}"
	file, title, _ := strings.Cut(to, "#")
	if title == "" {
		return fmt.Sprintf("/d/%s?%s", uidOf(file), kept)
	}
	return fmt.Sprintf("/d/%s?viewPanel=%d&%s", uidOf(file), idOf(file, title), kept)
}

// idOf is the number that a panel has on its board, 0 if there is none.
func idOf(file, title string) int {
	for _, b := range Boards() {
		id := 0
		for _, p := range b.Panels {
			if id++; p.Row != "" {
				id++
			}
			if b.File == file && p.Title == title {
				return id
			}
		}
	}
	return 0
}
