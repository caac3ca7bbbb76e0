// Command stage plays scenes: each is a runtime of its own on a simulated
// device, with a little work, whose metrics are served under /metrics/NAME.
// POST /act performs what each scene is named for: one leaks, one is refused,
// one loses its device. With -plan it prints the scenes, and the queries and
// alerts of package boards with what moves them.
//
// The test of tools/servers has a real Prometheus scrape it and asks every
// query before and after.
package main
