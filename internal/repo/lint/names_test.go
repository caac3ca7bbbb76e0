package lint

import "testing"

func TestNamesOfTheSeedsTableExist(t *testing.T) {
	code := map[string]string{
		"core/core.go": "package core\n\ntype Block struct{ ID int }\n\ntype Resource interface{ Allocate() }\n\n" +
			"const Read = 1\n\nfunc (b *Block) Free() {}\n\nfunc New() {}\n",
		"core/core_test.go":        "package core\n\nfunc TestOne(t *testing.T) {}\n",
		"core/coretest/cases.go":   "package coretest\n\nvar cases = []testCase{{name: \"a free\", run: nil}}\n",
		"decorators/logging/l.go":  "package logging\n\ntype Resource[T any] struct{}\n",
		"fencepost.go":             "package fencepost\n\nfunc Open() {}\n",
		"docs/another_document.md": "`core.NotLookedAt`\n",
	}
	with := func(table string) map[string]string {
		files := map[string]string{SeedsTable: table}
		for name, text := range code {
			files[name] = text
		}
		return files
	}
	check(t, Names, map[string]example{
		"good": {with("`context.Context`\n| `core.Block`, `core.Block.ID`, `core.Block.Free`, `core.Resource.Allocate`, `core.Read`, `core.New`\n" +
			"| `logging.Resource[T]`, `fencepost.Open`, `TestOne`, case \"a free\", `plain text`, `other_thing.x`\n"), nil},
		"bad": {with("| `core.Blob` |\n| `core.Block.Size`, `TestTwo` |\n| case \"a lease\"\n"), []string{
			`dev/seeds.md:1: core.Blob does not exist`,
			`dev/seeds.md:2: TestTwo does not exist`,
			`dev/seeds.md:2: core.Block.Size does not exist`,
			`dev/seeds.md:3: "a lease" does not exist`,
		}},
	})
}
