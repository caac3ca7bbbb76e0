package lint

import "testing"

func TestACommentBeginsWithItsOwnName(t *testing.T) {
	check(t, Misnamed, map[string]example{
		"function": {one("a/f.go", "package p\n\n// old does.\nfunc renamed() {}\n"), []string{`a/f.go:3: the comment begins with "old" and documents renamed`}},
		"method":   {one("a/f.go", "package p\n\n// old, which does.\nfunc (t T) renamed() {}\n"), []string{`a/f.go:3: the comment begins with "old" and documents renamed`}},
		"type":     {one("a/f.go", "package p\n\n// old is.\ntype renamed int\n"), []string{`a/f.go:3: the comment begins with "old" and documents renamed`}},
		"field":    {one("a/f.go", "package p\n\ntype t struct {\n\t// old is.\n\trenamed int\n}\n"), []string{`a/f.go:4: the comment begins with "old" and documents renamed`}},
		"constant": {one("a/f.go", "package p\n\n// old is.\nconst renamed = 1\n"), []string{`a/f.go:3: the comment begins with "old" and documents renamed`}},
		"test":     {one("a/f_test.go", "package p\n\n// old does.\nfunc renamed() {}\n"), []string{`a/f_test.go:3: the comment begins with "old" and documents renamed`}},
		"good": {one("a/f.go", "package p\n\n// f does.\nfunc f() {}\n\n// A sentence.\nfunc g() {}\n\n// b and a are.\nvar a, b int\n\n// docs/a.md has it.\nfunc h() {}\n\n"+
			"// t is.\ntype t struct {\n\t// y follows x.\n\tx, y int\n\tz int\n}\n"), nil},
	})
}
