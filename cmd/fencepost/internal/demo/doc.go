// Package demo is the main job of the fencepost command: the two workloads
// side by side on an open runtime, a report of what happened, and bugs planted
// on request to show what the runtime says of them.
package demo
