package boards_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/heatmap"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"

	"github.com/fencepost-gpu/fencepost/dev/boards"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func init() {
	sdk := cog.NewRuntime()
	sdk.RegisterPanelcfgVariant(heatmap.VariantConfig())
	sdk.RegisterPanelcfgVariant(stat.VariantConfig())
	sdk.RegisterPanelcfgVariant(statetimeline.VariantConfig())
	sdk.RegisterPanelcfgVariant(table.VariantConfig())
	sdk.RegisterPanelcfgVariant(timeseries.VariantConfig())
	sdk.RegisterDataqueryVariant(prometheus.VariantConfig())
}

// Grafana leaves out without a word what it does not know. So the files are
// checked against the types of its SDK, those of each panel's options among
// them.
func TestPanelsHaveTheOptionsThatGrafanaKnows(t *testing.T) {
	for _, b := range boards.Boards() {
		for _, wrong := range faultsOfBoard(t, read(t, "dashboards/"+b.File+".json")) {
			t.Errorf("%s: %s", b.File, wrong)
		}
	}
}

// A misspelt option, a value that there is not, and a number for a word.
func TestAMisspeltOptionIsSeen(t *testing.T) {
	files := map[string]string{}
	for _, b := range boards.Boards() {
		files[b.File] = read(t, "dashboards/"+b.File+".json")
	}
	for _, change := range [][3]string{
		{"overview", `"fillOpacity"`, `"fillOpactiy"`}, {"overview", `"displayMode": "table"`, `"displayMode": "tabel"`}, {"overview", `"graphMode"`, `"graphmode"`},
		{"overview", `"noValue"`, `"novalue"`}, {"overview", `"custom.axisPlacement"`, `"custom.axisPlace"`}, {"overview", `"calcs": [`, `"calc": [`},
		{"overview", `"mode": "normal"`, `"mode": "stacked"`}, {"overview", `"cellHeight": "sm"`, `"cellHeight": "small"`}, {"overview", `"showPoints": "never"`, `"showPoints": false`},
		{"overview", `"type": "color-text"`, `"type": "colour-text"`}, {"overview", `"targetBlank"`, `"targetBlanc"`}, {"overview", `"transformations"`, `"transformation"`},
		{"operations", `"type": "log"`, `"type": "logarithmic"`}, {"operations", `"yAxis"`, `"yaxis"`}, {"operations", `"scheme": "Spectral"`, `"scheme": 7`},
		{"overview", `"custom.minWidth"`, `"custom.minwidth"`}, {"overview", `"mode": "basic"`, `"mode": "bar"`}, {"guard", `"mode": "fixed"`, `"mode": "fixd"`}, {"guard", `"mergeValues": true`, `"mergeValue": true`}, {"guard", `"rowHeight": 0.9`, `"rowHeight": "0.9"`}, {"guard", `"mappings"`, `"mapping"`},
		{"overview", `"type": "timeseries"`, `"type": "graph"`}, {"overview", `"value": "right"`, `"value": "rihgt"`},
	} {
		broken := strings.Replace(files[change[0]], change[1], change[2], 1)
		if broken == files[change[0]] || len(faultsOfBoard(t, broken)) == 0 {
			t.Errorf("%s: %s for %s is not seen", change[0], change[2], change[1])
		}
	}
}

// faultsOfBoard is what Grafana would not understand: what the SDK has no field
// for, what is of another type, and what is outside an enumeration.
func faultsOfBoard(t *testing.T, text string) (found []string) {
	t.Helper()
	var d map[string]any
	must.Do(t, json.Unmarshal([]byte(text), &d))
	delete(d, "annotations") // theirs have what the datasource asks for
	panels, _ := d["panels"].([]any)
	for _, row := range panels {
		folded, _ := row.(map[string]any)["panels"].([]any)
		panels = append(panels, folded...)
	}
	for _, p := range panels {
		p, _ := p.(map[string]any)
		kind, _ := p["type"].(string)
		if _, known := cog.ConfigForPanelcfgVariant(kind); !known && kind != "row" {
			found = append(found, fmt.Sprintf("%v: no panel is a %q", p["title"], kind))
		}
		panels = append(panels, overridden(kind, p)...)
	}
	d["panels"] = panels
	whole, err := json.Marshal(d)
	must.Do(t, err)
	var known dashboard.Dashboard
	if err := json.Unmarshal(whole, &known); err != nil {
		return append(found, err.Error())
	}
	return append(found, faults(t, "board", d, reflect.ValueOf(known))...)
}

// overridden are panels whose defaults are what a panel overrides: a property
// is a field by its path.
func overridden(kind string, p map[string]any) (all []any) {
	config, _ := p["fieldConfig"].(map[string]any)
	overrides, _ := config["overrides"].([]any)
	for _, o := range overrides {
		o, _ := o.(map[string]any)
		properties, _ := o["properties"].([]any)
		for _, one := range properties {
			one, _ := one.(map[string]any)
			path, value := strings.Split(fmt.Sprint(one["id"]), "."), one["value"]
			for _, name := range slices.Backward(path) {
				value = map[string]any{name: value}
			}
			all = append(all, map[string]any{"type": kind, "title": fmt.Sprintf("%v: override", p["title"]), "fieldConfig": map[string]any{"defaults": value, "overrides": []any{}}})
		}
	}
	return all
}

// faults are what of a value was not read into v, and what is none of the
// constants of its type.
func faults(t *testing.T, path string, value any, v reflect.Value) (found []string) {
	t.Helper()
	if v = within(v); !v.IsValid() {
		if value != nil {
			found = append(found, fmt.Sprintf("%s cannot be %v", path, value))
		}
		return found
	}
	switch value := value.(type) {
	case map[string]any:
		for name, one := range value {
			if f := field(v, name); f.IsValid() {
				found = append(found, faults(t, path+"."+name, one, f)...)
			} else {
				found = append(found, fmt.Sprintf("%s has no %q", path, name))
			}
		}
	case []any:
		for i, one := range value {
			found = append(found, faults(t, fmt.Sprintf("%s[%d]", path, i), one, v.Index(i))...)
		}
	default:
		if of := v.Type(); of.PkgPath() != "" && !slices.Contains(constants(t, of.PkgPath())[of.Name()], fmt.Sprint(v)) {
			found = append(found, fmt.Sprintf("%s: no %s is %q", path, of.Name(), value))
		}
	}
	return found
}

// within is what a pointer points at, and of a union the one that was read.
func within(v reflect.Value) reflect.Value {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct || !v.Type().Implements(reflect.TypeFor[json.Marshaler]()) {
		return v
	}
	for i := range v.NumField() {
		if !v.Field(i).IsNil() {
			return within(v.Field(i))
		}
	}
	return reflect.Value{}
}

// field is what v has of a name, in exactly that spelling.
func field(v reflect.Value, name string) reflect.Value {
	if v.Kind() == reflect.Map {
		return v.MapIndex(reflect.ValueOf(name))
	}
	for i := range v.NumField() {
		if tag, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ","); tag == name {
			return v.Field(i)
		}
	}
	return reflect.Value{}
}

// enumerations are the constants of the SDK's packages by their types.
var enumerations = map[string]map[string][]string{}

// constants are those of one package, read once.
func constants(t *testing.T, pkg string) map[string][]string {
	t.Helper()
	if enumerations[pkg] != nil {
		return enumerations[pkg]
	}
	source := must.Get(build.Import(pkg, ".", build.FindOnly))(t)
	file := must.Get(parser.ParseFile(token.NewFileSet(), source.Dir+"/types_gen.go", nil, parser.SkipObjectResolution))(t)
	all := map[string][]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, is := n.(*ast.ValueSpec); is && len(spec.Values) == 1 {
			of, named := spec.Type.(*ast.Ident)
			value, literal := spec.Values[0].(*ast.BasicLit)
			if named && literal {
				all[of.Name] = append(all[of.Name], strings.Trim(value.Value, `"`))
			}
		}
		return true
	})
	enumerations[pkg] = all
	return all
}
