package telemetry

// DumpCount is how many dumps of the history a trigger caused that came to an
// outcome.
type DumpCount struct {
	Trigger, Outcome string
	Count            uint64
}

var dumpMetrics = []definition{
	{name: MetricDumps, kind: counter, labels: []string{"trigger", "outcome"}, help: "Dumps of the history by what caused them and what became of them: written, limited because there was one shortly before, or failed."},
}

func (s Source) collectDumps(out emitter) {
	for _, c := range s.Dumps() {
		out.send(MetricDumps, c.Count, c.Trigger, c.Outcome)
	}
}
