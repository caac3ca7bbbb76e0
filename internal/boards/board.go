package boards

// Board is one dashboard.
type Board struct {
	// File is the name of its file without ".json", and the end of its uid.
	File        string
	Title       string
	Description string
	Rows        []Row
}

// Row is a heading with panels below it.
type Row struct {
	Title  string
	Panels []Panel
}

// Kind is how a panel draws.
type Kind string

// The kinds, by Grafana's names.
const (
	Stat       Kind = "stat"
	TimeSeries Kind = "timeseries"
	Table      Kind = "table"
	Heatmap    Kind = "heatmap"
)

// Units, by Grafana's names.
const (
	Bytes         = "bytes"
	BytesASecond  = "binBps"
	Seconds       = "s"
	Count         = "short"
	EventsASecond = "cps"
	OpsASecond    = "ops"
	Share         = "percentunit"
)

// Panel is one picture.
type Panel struct {
	Title string
	// Shows says what is drawn, Bad what a bad picture looks like and means,
	// and Do what to do about it. The description is made of them.
	Shows, Bad, Do string
	Kind           Kind
	Unit           string
	// Width is in columns of Grafana's grid, which has 24.
	Width int
	// Stacked draws series on top of each other, where their sum means
	// something.
	Stacked bool
	// Levels colour a Stat by its value; without any it is neutral.
	Levels  []Level
	Queries []Query
}

// Level is a colour from a value on. Series, if not empty, is the only one that
// it is for.
type Level struct {
	From   float64
	Color  string
	Series string
}

// Query is what a panel asks Prometheus. In Expr {@ stands for the matchers of
// all variables and {@process for those without the device.
type Query struct {
	Expr, Legend string
	// RightUnit, if not empty, draws it on an axis of its own, on the right.
	RightUnit string
	// Exemplars draws them, with a way to their traces.
	Exemplars bool
	// Raw says why a counter is shown as it is, which starts anew with its
	// process; empty demands a rate or an increase.
	Raw string
	// Proof is what moves it.
	Proof Proof
}

// Proof says what moves a query: after the scene's action the sum of the
// series that Series picks is at least By above the highest that it was
// before, or below the lowest if By is negative, and at most a hundred times By.
// Where there was no series it was 0. What nothing can move, such as the size of a device, is Is instead.
type Proof struct {
	Scene  string            `json:"scene"`
	By     float64           `json:"by,omitempty"`
	Is     float64           `json:"is,omitempty"`
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
func Boards() []Board { return []Board{overview(), operations(), guard(), streams()} }
