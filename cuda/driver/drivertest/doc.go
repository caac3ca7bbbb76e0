// Package drivertest helps to test what stands on [driver.Driver], and
// drivers themselves: [Conformance] is what every driver must pass, [Faults]
// makes chosen calls of any driver fail, and [Null] is a device that does
// nothing, for measuring what its caller costs.
package drivertest
