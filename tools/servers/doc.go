// Package servers holds the tests of what is written for Prometheus and for
// the OpenTelemetry Collector, with the code of those: the configurations of
// docker-compose.yml are read by the programs that will read them, and spans of
// the example service go through a real collector.
package servers
