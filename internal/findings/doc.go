// Package findings is what happens when a memory bug is found: one list, in
// Reporter.handle, which [Reporter.Report] and [Reporter.FromOracle] share.
//
// A finding comes from the debug guard, from the runtime, or, on a simulated
// device, from the device's oracle, which sees each access but knows addresses and
// driver handles only. What the oracle saw is first put into the words of the
// others: which block, whose, and on which stream (oracletranslator.go). Where guard and
// oracle saw the same bug, it is reported once (repeats.go). Some findings end the
// process, if the policy says so (stop.go).
//
// Everything that a Reporter calls is given to [New]; nothing is added later. What
// does not exist yet at that time, such as the guard, is asked for when a finding
// needs it.
//
// Refused requests are no findings. [Refusals] keeps the newest of them for those
// who look at a runtime afterwards.
package findings
