package boards

// Board is one dashboard.
type Board struct {
	// File is the name of its file without ".json", and the end of its uid.
	File        string
	Title       string
	Description string
	// Annotations are what the time axes mark.
	Annotations []Annotation
	Panels      []Panel
}

// Kind is how a panel draws.
type Kind string

// The kinds, by Grafana's names.
const (
	Stat          Kind = "stat"
	TimeSeries    Kind = "timeseries"
	StateTimeline Kind = "state-timeline"
	Table         Kind = "table"
	Heatmap       Kind = "heatmap"
)

// Panel is one picture.
type Panel struct {
	// Row, if not empty, is a heading that begins with it. Fold hides what is below
	// it until it is clicked.
	Row, Title string
	Fold       bool
	// Shows says what is drawn, Bad what a bad picture looks like and means,
	// and Do what to do about it. The description is made of them.
	Shows, Bad, Do string
	Kind           Kind
	Unit           string // by Grafana's name, see package units of its SDK
	// Width is in columns of Grafana's grid, which has 24, and Height in its
	// lines; 0 is what the kind needs.
	Width, Height int
	// None is what it says where there is no data; empty means that there is no
	// runtime.
	None string
	// Link is where a click on a value leads: the file of a board, and after a #
	// the title of one of its panels. Of a Table the columns say it.
	Link string
	// Log draws a logarithmic axis, and Signed one that goes below zero. Others
	// begin at zero.
	Log, Signed bool
	// States are the names of values: of a StateTimeline all that there are.
	States []State
	// Columns are the headings of a Table's columns, by the names of labels, or
	// "Value". Labels that are not among them are not shown.
	Columns []Column
	// Largest are the headings of the columns by which a Table is sorted.
	Largest []string
	// Stacked draws series on top of each other, where their sum means
	// something.
	Stacked bool
	// Levels colour a Stat by its value; without any it is neutral. Of a TimeSeries
	// they are the colours of series, whatever their values.
	Levels  []Level
	Queries []Query
}

// Level is a colour from a value on. Series, if not empty, is the only one that
// it is for. What is below the first is good, and what has no value neither.
type Level struct {
	From   float64
	Color  string
	Series string
}

// State is what a value means.
type State struct {
	Value, Text, Color string
}

// Column is one of a table.
type Column struct {
	Label, Heading string
	// Unit, if not empty, is the unit of its numbers.
	Unit string
	// Width is how many pixels it has at least, 0 the usual.
	Width int
	// Gauge draws a share as a bar, coloured by Levels.
	Gauge  bool
	Levels []Level
	// States are the names of its values.
	States []State
	// Links are where a click on a value leads. Hidden is what only links need.
	Links  []Link
	Hidden bool
}

// Link is one from a row of a table. In URL ${__data.fields.NAME} is the row's value.
type Link struct{ Title, URL string }

// Annotation marks the times at which its query has a value.
type Annotation struct {
	Name, Color string
	// Title is the text of a mark, with labels as in a legend.
	Title string
	// At says that the values are the times, in milliseconds.
	At    bool
	Query Query
}

// Query is what a panel asks Prometheus. In Expr {@ stands for the matchers of
// all variables and {@process for those without the device.
type Query struct {
	// Legend names its series; only those of tables and heatmaps have none.
	Expr, Legend string
	// RightUnit, if not empty, draws it on an axis of its own, on the right.
	RightUnit string
	// Exemplars draws them, with a way to their traces.
	Exemplars bool
	// Raw says why a counter is shown as it is, which starts anew with its
	// process; empty demands a rate or an increase.
	Raw string
	// Fleet says why it asks for instances that were not chosen.
	Fleet string
	// Proof is what moves it, Also what moves it in another way.
	Proof Proof
	Also  []Proof
}

// Proof says what moves a query: after the scene's action the sum of the
// series that Series picks is at least By above the highest that it was
// before, or below the lowest if By is negative, and at most a hundred times By.
// Where there was no series it was 0. What nothing can move, such as the size of a device, is Is instead, and a
// time is after After.
type Proof struct {
	Scene  string            `json:"scene"`
	By     float64           `json:"by,omitempty"`
	Is     float64           `json:"is,omitempty"`
	After  float64           `json:"after,omitempty"`
	Series map[string]string `json:"series,omitempty"`
}

// moves is a Proof. Each pair of series is a label's name and value.
func moves(scene string, by float64, series ...string) Proof {
	p := Proof{Scene: scene, By: by, Series: map[string]string{}}
	for i := 0; i+1 < len(series); i += 2 {
		p.Series[series[i]] = series[i+1]
	}
	return p
}

// stays is a Proof for what nothing can move.
func stays(scene string, is float64) Proof { return Proof{Scene: scene, Is: is} }

// Boards are all dashboards.
func Boards() []Board { return []Board{overview, operations, guard, streams, jobs, fleet} }

// Files are the generated files by their paths from the repository's top.
func Files() (map[string][]byte, error) {
	files := map[string][]byte{"dashboards/rules/fencepost.yaml": []byte(Rules())}
	for _, b := range Boards() {
		text, err := JSON(b)
		if err != nil {
			return nil, err
		}
		files["dashboards/"+b.File+".json"] = text
	}
	return files, nil
}
