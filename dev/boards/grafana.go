package boards

// The form of Grafana's classic dashboards, as far as ours use it. The version
// of the schema is that of Grafana 12 and 13; older ones migrate what they
// load.
const schemaVersion = 42

type dashboard struct {
	UID           string      `json:"uid"`
	Title         string      `json:"title"`
	Description   string      `json:"description"`
	Tags          []string    `json:"tags"`
	SchemaVersion int         `json:"schemaVersion"`
	Version       int         `json:"version"`
	Editable      bool        `json:"editable"`
	GraphTooltip  int         `json:"graphTooltip"`
	Refresh       string      `json:"refresh"`
	Time          timeRange   `json:"time"`
	Timezone      string      `json:"timezone"`
	Templating    templating  `json:"templating"`
	Annotations   annotations `json:"annotations"`
	Links         []link      `json:"links"`
	Panels        []panel     `json:"panels"`
}

type annotations struct {
	List []annotation `json:"list"`
}

type annotation struct {
	Name            string `json:"name"`
	Datasource      source `json:"datasource"`
	Enable          bool   `json:"enable"`
	Hide            bool   `json:"hide"`
	IconColor       string `json:"iconColor"`
	Expr            string `json:"expr"`
	Step            string `json:"step,omitempty"`
	TitleFormat     string `json:"titleFormat"`
	TextFormat      string `json:"textFormat"`
	TagKeys         string `json:"tagKeys"`
	UseValueForTime string `json:"useValueForTime,omitempty"`
}

type timeRange struct {
	From string `json:"from"`
	To   string `json:"to"`
}

type link struct {
	Title       string   `json:"title"`
	Type        string   `json:"type"`
	Tags        []string `json:"tags"`
	Icon        string   `json:"icon"`
	Tooltip     string   `json:"tooltip"`
	TargetBlank bool     `json:"targetBlank"`
	AsDropdown  bool     `json:"asDropdown"`
	IncludeVars bool     `json:"includeVars"`
	KeepTime    bool     `json:"keepTime"`
}

type templating struct {
	List []variable `json:"list"`
}

type variable struct {
	Name       string      `json:"name"`
	Label      string      `json:"label"`
	Type       string      `json:"type"`
	Datasource *source     `json:"datasource,omitempty"`
	Query      any         `json:"query"`
	Refresh    int         `json:"refresh"`
	Multi      bool        `json:"multi"`
	IncludeAll bool        `json:"includeAll"`
	AllValue   string      `json:"allValue,omitempty"`
	Sort       int         `json:"sort,omitempty"`
	Current    chosenValue `json:"current"`
}

type variableQuery struct {
	Query string `json:"query"`
	RefID string `json:"refId"`
}

type chosenValue struct {
	Text  any `json:"text,omitempty"`
	Value any `json:"value,omitempty"`
}

type source struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type panel struct {
	ID              int              `json:"id"`
	Type            string           `json:"type"`
	Title           string           `json:"title"`
	Description     string           `json:"description,omitempty"`
	GridPos         gridPos          `json:"gridPos"`
	Datasource      *source          `json:"datasource,omitempty"`
	Targets         []target         `json:"targets,omitempty"`
	FieldConfig     *fieldConfig     `json:"fieldConfig,omitempty"`
	Options         map[string]any   `json:"options,omitempty"`
	Transformations []transformation `json:"transformations,omitempty"`
	Collapsed       *bool            `json:"collapsed,omitempty"` // of rows
	Panels          *[]panel         `json:"panels,omitempty"`    // of rows
}

type gridPos struct {
	X int `json:"x"`
	Y int `json:"y"`
	W int `json:"w"`
	H int `json:"h"`
}

type target struct {
	RefID        string `json:"refId"`
	Datasource   source `json:"datasource"`
	Expr         string `json:"expr"`
	LegendFormat string `json:"legendFormat"`
	EditorMode   string `json:"editorMode"`
	Format       string `json:"format"`
	Instant      bool   `json:"instant"`
	Range        bool   `json:"range"`
	Exemplar     bool   `json:"exemplar"`
}

type fieldConfig struct {
	Defaults  fieldDefaults `json:"defaults"`
	Overrides []override    `json:"overrides"`
}

type fieldDefaults struct {
	Unit       string         `json:"unit"`
	Min        *float64       `json:"min,omitempty"`
	NoValue    string         `json:"noValue"`
	Color      colorMode      `json:"color"`
	Thresholds thresholds     `json:"thresholds"`
	Mappings   []mapping      `json:"mappings,omitempty"`
	Links      []dataLink     `json:"links,omitempty"`
	Custom     map[string]any `json:"custom,omitempty"`
}

type mapping struct {
	Type    string                 `json:"type"`
	Options map[string]mappedValue `json:"options"`
}

type mappedValue struct {
	Text  string `json:"text"`
	Color string `json:"color"`
	Index int    `json:"index"`
}

type dataLink struct {
	Title       string `json:"title"`
	URL         string `json:"url"`
	TargetBlank bool   `json:"targetBlank"`
}

type colorMode struct {
	Mode string `json:"mode"`
}

type thresholds struct {
	Mode  string `json:"mode"`
	Steps []step `json:"steps"`
}

type step struct {
	Value *float64 `json:"value"` // null is minus infinity
	Color string   `json:"color"`
}

type override struct {
	Matcher    matcher    `json:"matcher"`
	Properties []property `json:"properties"`
}

type matcher struct {
	ID      string `json:"id"`
	Options string `json:"options"`
}

type property struct {
	ID    string `json:"id"`
	Value any    `json:"value"`
}

type transformation struct {
	ID      string         `json:"id"`
	Options map[string]any `json:"options"`
}
