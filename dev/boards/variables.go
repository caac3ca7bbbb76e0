package boards

// variables choose what a board shows. Each of the last three offers what the
// ones before it leave; none but the datasource is needed to see everything.
func variables() []variable {
	return []variable{
		{Name: "datasource", Label: "Datasource", Type: "datasource", Query: "prometheus", Refresh: 1,
			Current: chosenValue{Text: "Prometheus", Value: "prometheus"}},
		choice("job", "Job", ``),
		choice("instance", "Instance", `job=~"$job"`),
		choice("device", "Device", matchProcess),
	}
}

// choice offers the values that a label has where the matchers hold. It is
// looked up anew when the time range changes: a process that is gone had
// series then.
func choice(name, label, where string) variable {
	query := "label_values(gpumem_memory_bytes{" + where + "}, " + name + ")"
	return variable{
		Name: name, Label: label, Type: "query", Datasource: &prometheus,
		Query:   variableQuery{Query: query, RefID: "PrometheusVariableQueryEditor-VariableQuery"},
		Refresh: onTimeRangeChange, Multi: true, IncludeAll: true, AllValue: ".+", Sort: alphabetical,
		Current: chosenValue{Text: []string{"All"}, Value: []string{"$__all"}},
	}
}
