package lint

import "testing"

func TestMentionedPathsAreThere(t *testing.T) {
	with := func(path, text string) map[string]string {
		return map[string]string{"cuda/driver/seam.go": "package driver\n", "docs/page.md": "A page.\n", path: text}
	}
	const advice = " is not there: say where it is now"
	check(t, Paths, map[string]example{
		"there":           {with("a.md", "See `cuda/driver/seam.go`, cuda/driver, docs/page.md#title and `cuda/driver.Driver`.\n"), nil},
		"no path of ours": {with("a.md", "See x/cuda/away, net/http and ./docs/away.\n"), nil},
		"test data":       {with("a.md", "See docs/testdata/x.json and docs/x.png.\n"), nil},
		"document":        {with("a.md", "See\n`docs/away.md`.\n"), []string{"a.md:2: docs/away.md" + advice}},
		"comment":         {with("a.go", "// Package a is as cuda/away.\npackage a\n\nvar x = \"cuda/elsewhere\"\n"), []string{"a.go:1: cuda/away" + advice}},
		"file and name":   {with("a.go", "package a\n\n// See cuda/driver.go.\n"), []string{"a.go:3: cuda/driver.go" + advice}},
		"script":          {with("do", "go run ./x # docs/away\n"), []string{"do:1: docs/away" + advice}},
		"test":            {with("a_test.go", "package a\n\n// See docs/away.\n"), nil},
	})
}

func TestLinksLeadSomewhere(t *testing.T) {
	with := func(text string) map[string]string {
		return map[string]string{"a.md": text, "docs/b.md": "# The page\n\n## What's new\n\n```\n# no heading\n```\n", "docs/b.go": "package b\n"}
	}
	check(t, Links, map[string]example{
		"there":     {with("# Top\n[b](docs/b.md), [new](docs/b.md#whats-new), [go](docs/b.go), [folder](docs), [above](#top), [site](https://x/y.md)\n"), nil},
		"code":      {with("```\nx[i](err)\n```\n"), nil},
		"not there": {with("a\n[b](docs/c.md)\n"), []string{"a.md:2: docs/c.md leads nowhere"}},
		"no anchor": {with("[b](docs/b.md#old)\n"), []string{"a.md:1: docs/b.md#old leads nowhere"}},
		"in code":   {with("[b](docs/b.md#no-heading)\n"), []string{"a.md:1: docs/b.md#no-heading leads nowhere"}},
	})
}
