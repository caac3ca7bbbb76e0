package dump

// Outcome is what became of a dump.
type Outcome string

// The outcomes.
const (
	// Written: its files are in the folder.
	Written Outcome = "written"
	// Limited: it was left out, because there was one shortly before.
	Limited Outcome = "limited"
	// Failed: not all of its files could be written.
	Failed Outcome = "failed"
)

type key struct {
	trigger Trigger
	outcome Outcome
}

// Count is how many dumps of a trigger came to an outcome.
type Count struct {
	Trigger Trigger
	Outcome Outcome
	Count   uint64
}

// Stats counts the dumps so far, by every trigger and outcome.
func (w *Writer) Stats() []Count {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []Count
	for _, t := range []Trigger{Finding, Refusals, StickyError, Request} {
		for _, o := range []Outcome{Written, Limited, Failed} {
			all = append(all, Count{t, o, w.counts[key{t, o}]})
		}
	}
	return all
}

// Failures is how many dumps could not be written.
func (w *Writer) Failures() (n uint64) {
	for _, c := range w.Stats() {
		if c.Outcome == Failed {
			n += c.Count
		}
	}
	return n
}
