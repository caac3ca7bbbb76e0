package lint

import (
	"fmt"
	"strings"
	"testing"
)

func TestFilesAreShort(t *testing.T) {
	long := "package p\n" + strings.Repeat("\n", MaxLines)
	check(t, Length, map[string]example{
		"long":      {one("a/f.go", long), []string{"a/f.go:501: 501 lines, at most 500: split it"}},
		"just fits": {one("a/f.go", strings.TrimSuffix(long, "\n")), nil},
		"test":      {one("a/f_test.go", long), nil},
		"document":  {one("a/f.md", long), nil},
	})
}

func TestPackagesAreNoCrowds(t *testing.T) {
	files := func(dir string, n int) map[string]string {
		all := map[string]string{dir + "/f_test.go": "package p\n"}
		for i := range n {
			all[fmt.Sprintf("%s/f%d.go", dir, i)] = "package p\n"
		}
		return all
	}
	check(t, Crowded, map[string]example{
		"many":      {files("decorators/x", MaxFiles+1), []string{"decorators/x:1: 31 source files, at most 30: put together what is one subject, or divide the package"}},
		"just fits": {files("decorators/x", MaxFiles), nil},
		"by name":   {files("cuda/sim", MaxFiles+1), nil},
		"command":   {files("cmd/x", MaxFiles+1), nil},
	})
}

func TestWordsOfUnfinishedWorkAndMachinePaths(t *testing.T) {
	todo, xs := "TO"+"DO", "XX"+"X"
	work, home := "/wo"+"rk/", "/ho"+"me/me/"
	check(t, Words, map[string]example{
		"mark":           {one("a/f.go", "package p\n\n// "+todo+": later\n"), []string{"a/f.go:3: " + todo + ": finish it or open an issue"}},
		"mark elsewhere": {one("Makefile", "# "+xs+"\n"), []string{"Makefile:1: " + xs + ": finish it or open an issue"}},
		"template":       {one("s.sh", "mktemp x."+xs+xs+"\n"), nil},
		"machine path":   {one("a.md", "see "+work+"main\n"), []string{"a.md:1: " + work + " is a path of one machine"}},
		"home":           {one("a.md", "`"+home+"x`\n"), []string{"a.md:1: `" + home + " is a path of one machine"}},
		"part of a name": {one("a.md", "net"+work+"x and home"+work+"x\n"), nil},
	})
}
