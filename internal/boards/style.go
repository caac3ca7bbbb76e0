package boards

// neutral is the colour of what is neither good nor bad. Without thresholds of
// our own Grafana would paint everything above 80 red.
const neutral = "blue"

func (p Panel) defaults() fieldDefaults {
	d := fieldDefaults{Unit: p.Unit, Color: colorMode{"palette-classic"}, Thresholds: steps(neutral, p.Levels)}
	if len(p.Levels) > 0 && p.Levels[0].Series == "" {
		d.Thresholds = steps("green", p.Levels)
	}
	return d
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
	return all
}

// style is how the kind of panel looks.
func (p Panel) style(out *panel) {
	switch p.Kind {
	case Stat:
		out.GridPos.H = statHeight
		out.FieldConfig.Defaults.Color.Mode = "thresholds"
		out.Options = map[string]any{"reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}}, "colorMode": "value", "graphMode": "area"}
	case TimeSeries:
		custom := map[string]any{"fillOpacity": 10, "showPoints": "never", "spanNulls": false}
		if p.Stacked {
			custom["stacking"] = map[string]any{"mode": "normal", "group": "A"}
			custom["fillOpacity"] = 40
		}
		out.FieldConfig.Defaults.Custom = custom
		out.Options = map[string]any{"legend": map[string]any{"displayMode": "list", "placement": "bottom"}, "tooltip": map[string]any{"mode": "multi", "sort": "desc"}}
	case Table:
		out.Transformations = []transformation{{"organize", map[string]any{"excludeByName": map[string]any{"Time": true, "__name__": true, "job": true}}}}
	case Heatmap:
		out.Options = map[string]any{"calculate": false, "yAxis": map[string]any{"unit": p.Unit}, "color": map[string]any{"mode": "scheme", "scheme": "Spectral"}}
	}
}
