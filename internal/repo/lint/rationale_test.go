package lint

import (
	"strings"
	"testing"
)

func TestRationalesAreShortAndStandOnce(t *testing.T) {
	const good = "# R\n\n**Why?**\nBecause.\n\n**How?**\nSo.\n"
	check(t, Rationales, map[string]example{
		"good":        {one("RATIONALE.md", good), nil},
		"elsewhere":   {one("docs/page.md", "**Why**\n"), nil},
		"linked":      {map[string]string{"RATIONALE.md": "[a](a/RATIONALE.md)\n", "a/RATIONALE.md": good}, nil},
		"not linked":  {map[string]string{"RATIONALE.md": "a\n", "a/RATIONALE.md": good}, []string{"a/RATIONALE.md:1: RATIONALE.md does not link this page"}},
		"long":        {one("RATIONALE.md", "**Why?**\n"+strings.Repeat("Because.\n", 12)), []string{"RATIONALE.md:1: question and answer have 13 lines, and may have 12"}},
		"no answer":   {one("RATIONALE.md", "**Why?**\n\n**How?**\nSo.\n"), []string{"RATIONALE.md:1: the question has no answer below it"}},
		"no question": {one("RATIONALE.md", "**Because.**\nSo.\n"), []string{"RATIONALE.md:1: the question does not end in a question mark"}},
		"twice":       {one("RATIONALE.md", "**Why?**\nSo.\n\n**Why?**\nThus.\n"), []string{"RATIONALE.md:4: the question stands at RATIONALE.md:1 too"}},
	})
}
