// Package servers holds the tests of what is written for Prometheus, Grafana
// and the OpenTelemetry Collector, with the code of those that can be had: the
// configurations of docker-compose.yml are read by the programs that will read
// them, spans of the example service go through a real collector, and a real
// Prometheus is asked every query of dashboards/ while package
// dev/boards/stage plays what moves it.
package servers
