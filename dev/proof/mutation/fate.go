package mutation

// Fate is what became of one mutant: one execution of one site.
type Fate struct {
	Site, Execution int
	// Killed: something was found wrong, By says what: "missed", "wrong",
	// "redundant" and "extra" are the oracle's, "answer" is a call that was
	// refused or not, "driver" an event that was destroyed already, "books",
	// "events" and "early" are what is left at the end or comes too early.
	Killed bool
	By     []string
	// Runs is how many were tried, Reaching how many of all execute the site
	// so often.
	Runs, Reaching int
	// Report is the failure, of the program that was tried last.
	Report string
}
