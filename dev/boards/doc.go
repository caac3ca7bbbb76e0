// Package boards is where Grafana's dashboards and Prometheus' alerts are
// written. The files of dashboards/ are made of it:
//
//	make generate
//
// A test of this package says whether they are current. Beside each query
// stands what moves it: the name of a scene of package stage, which plays it on
// a real runtime while a real Prometheus watches (tools/servers). So a panel
// that nothing can move, or that shows the wrong thing, is a failing test.
//
//go:generate go run ./write
package boards

// Version is that of the boards and rules. It rises with each release that
// changes them, so that those who keep a copy know which they have.
const Version = 3
