package main

import (
	"cmp"
	"slices"

	"github.com/fencepost-gpu/fencepost/dev/boards"
)

// scenes are all that there are, in no order.
func scenes() []scene {
	return slices.Concat(workScenes(), memoryScenes(), orderScenes(), bugScenes(), guardScenes(), lossScenes())
}

// plan is what the stage plays and what it is for.
type plan struct {
	Scenes  []string      `json:"scenes"`
	Queries []plannedAsk  `json:"queries"`
	Alerts  []plannedFire `json:"alerts"`
	Records int           `json:"records"` // how many recording rules there are
}

type plannedAsk struct {
	Where     string `json:"where"` // the board, the panel and the query's letter
	Expr      string `json:"expr"`
	Unit      string `json:"unit"`
	Exemplars bool   `json:"exemplars"`
	Raw       bool   `json:"raw"`
	Fleet     bool   `json:"fleet"`
	// Held asks for what it was within the last minute or so.
	Held  bool         `json:"held"`
	Proof boards.Proof `json:"proof"`
}

type plannedFire struct {
	Name  string `json:"name"`
	Expr  string `json:"expr"`
	For   string `json:"for"`
	Scene string `json:"scene"`
}

func newPlan() (p plan) {
	for _, s := range scenes() {
		p.Scenes = append(p.Scenes, s.name)
	}
	for _, b := range boards.Boards() {
		for _, a := range b.Annotations {
			p.Queries = append(p.Queries, plannedAsk{Where: b.File + ": annotation: " + a.Name, Expr: a.Query.Expand(), Raw: a.Query.Raw != "", Held: true, Proof: a.Query.Proof})
		}
		for _, row := range b.Rows {
			for _, panel := range row.Panels {
				for i, q := range panel.Queries {
					p.Queries = append(p.Queries, plannedAsk{
						Where: b.File + ": " + panel.Title + ": " + string(rune('A'+i)), Expr: q.Expand(),
						Unit: cmp.Or(q.RightUnit, panel.Unit), Exemplars: q.Exemplars, Raw: q.Raw != "", Fleet: q.Fleet != "", Proof: q.Proof,
					})
				}
			}
		}
	}
	p.Records = len(boards.Records())
	for _, a := range boards.Alerts() {
		p.Alerts = append(p.Alerts, plannedFire{a.Name, a.Expr, a.For, a.Scene})
	}
	return p
}
