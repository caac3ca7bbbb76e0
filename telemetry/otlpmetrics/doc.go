// Package otlpmetrics pushes the metrics of a Prometheus registry over OTLP, for
// programs that cannot be scraped. The registry stays the one place of metrics:
// what is pushed is what a scrape would have got, under the same names.
//
// Without a variable of the environment that asks for it nothing is pushed and
// nothing connects; see [Open]. The page docs/observe.md says what changes
// on the way.
package otlpmetrics
