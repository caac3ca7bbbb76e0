// Package corpus holds small programs over the public API that judge the debug
// guard: programs with a planted memory bug, the same programs without it, and
// clean programs that look suspicious. They run on the simulated device and on
// a GPU, at every tier of the guard; dev/corpus.md is the table of what
// was found.
//
// # A case
//
// A [Case] is one function of a [World] and of whether the bug is planted. Its
// twin is the same function without it, so what differs between the two is the
// bug and nothing else. The program names the block that is harmed
// ([World.Victim]); the case says of which kinds a finding of it may be, which
// launch is the culprit, what each tier must make of it, and why where that is
// not "found". Cases differ in kind, access or the relation of streams; sizes
// and repeats do not count.
//
// # Verdicts
//
// Found: a finding by the guard or the runtime, of a kind that the case names
// and about the block that was harmed, no later than the end of the program's
// Drain. Late: one of such a kind without the right victim, or about the
// victim of another kind, or only when the runtime was closed. Missed: nothing
// of the sort. Refused: on a GPU the driver refused the call that is the bug,
// because it checks the ranges of copies and fills against its allocations, so
// nothing happened; that will do only where the tier need not find the bug.
// Whatever else is reported in a program without a bug is a false alarm.
//
// The oracle of the simulated device, in a run with the guard off, proves
// that a bug really happens; no tier is credited with what it sees.
//
// # Safety
//
// The programs run on a GPU in the process of the tests. A stray write lands in
// memory that the driver has mapped: blocks keep away from the ends of the
// granules that memory is mapped in, and what reaches farther aims at a block
// of the program's own. A program that loses the device by design says so and
// gets a process of its own there.
//
//go:generate go run ./table
package corpus
