// Package metrics exports what a stack of GPU memory counts to Prometheus.
// [Collector] reads a [Source] for each device; [Calls] counts the operations that
// a layer sees, and [TagSeries] decides which tags have series of their own.
//
// Every metric stands once, in the table of the group that it is read with: name,
// help, labels, and how its samples are read. [Catalogue] lists them, and
// docs/metrics.md is made of that.
package metrics
