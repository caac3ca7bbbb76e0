package main

import (
	"cmp"

	"github.com/fencepost-gpu/fencepost/dev/boards"
)

// plan is what the stage plays and what it is for.
type plan struct {
	Scenes  []string
	Queries []plannedQuery
	Alerts  []plannedAlert
	Records int // how many recording rules there are
}

type plannedQuery struct {
	Where      string // the board, the panel and the query's letter
	Expr, Unit string
	Exemplars  bool
	Raw, Fleet bool
	Held       bool // asks for what it was within the last minute or so
	Proof      boards.Proof
}

type plannedAlert struct{ Name, Expr, For, Scene string }

func newPlan() (p plan) {
	for _, s := range scenes() {
		p.Scenes = append(p.Scenes, s.name)
	}
	add := func(where, unit string, held bool, q boards.Query) {
		for _, proof := range append([]boards.Proof{q.Proof}, q.Also...) {
			p.Queries = append(p.Queries, plannedQuery{where, q.Expand(), unit, q.Exemplars, q.Raw != "", q.Fleet != "", held, proof})
		}
	}
	for _, b := range boards.Boards() {
		for _, a := range b.Annotations {
			add(b.File+": annotation: "+a.Name, "", true, a.Query)
		}
		for _, panel := range b.Panels {
			for i, q := range panel.Queries {
				add(b.File+": "+panel.Title+": "+string(rune('A'+i)), cmp.Or(q.RightUnit, panel.Unit), false, q)
			}
		}
	}
	for _, a := range boards.Alerts() {
		p.Alerts = append(p.Alerts, plannedAlert{a.Name, a.Expr, a.For, a.Scene})
	}
	p.Records = len(boards.Records())
	return p
}
