package boards

// Record is a recording rule: what a fleet's boards would have to add up from
// all instances each time they are drawn.
type Record struct{ Name, Expr string }

// Records are all recording rules. Their names say what they are by, of what,
// and how it is added up.
func Records() []Record {
	return []Record{
		{"job_tag:gpumem_tag_bytes:sum", `sum by (job, tag, state) (gpumem_tag_bytes)`},
		// Without the tag, of which the first finding is a series that begins at 1.
		{"instance_kind:gpumem_findings_total", `sum without (tag) (gpumem_findings_total)`},
	}
}
