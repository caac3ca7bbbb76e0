//go:build unix

package wholefile

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// However a chain of links leads to a file, also to one that is not there yet, Update writes that
// file and each link stays one.
func TestAnUpdateWritesWhereLinksLead(t *testing.T) {
	for what, links := range map[string][][2]string{
		"a link beside it":           {{"real/n", "link"}},
		"a chain":                    {{"real/n", "second"}, {"second", "link"}},
		"an absolute link":           {{"/real/n", "link"}},
		"a folder":                   {{"real", "folder"}, {"folder/n", "link"}},
		"up from a linked folder":    {{"real/below", "folder"}, {"../n", "real/below/up"}, {"folder/up", "link"}},
		"up through a linked one":    {{"real/below", "folder"}, {"folder/../n", "link"}},
		"a chain across two of them": {{"../n", "real/below/up"}, {"real/below", "folder"}, {"folder/up", "second"}, {"second", "link"}},
	} {
		for _, there := range []bool{true, false} {
			dir := t.TempDir()
			n := filepath.Join(dir, "real", "n")
			must.Do(t, os.MkdirAll(filepath.Join(dir, "real", "below"), 0o755))
			if there {
				must.Do(t, increment(n))
			}
			for _, l := range links {
				to := l[0]
				if filepath.IsAbs(to) {
					to = dir + to
				}
				must.Do(t, os.Symlink(to, filepath.Join(dir, l[1])))
			}
			link := filepath.Join(dir, "link")
			must.Do(t, Ready(link), increment(link), increment(link))
			want := map[bool]string{true: "3", false: "2"}[there]
			if text, err := os.ReadFile(n); err != nil || string(text) != want {
				t.Errorf("%s, there before: %v: it is %q, %v", what, there, text, err)
			}
			for _, l := range links {
				if info, err := os.Lstat(filepath.Join(dir, l[1])); err != nil || info.Mode()&fs.ModeSymlink == 0 {
					t.Errorf("%s: the link %s is %v, %v", what, l[1], info, err)
				}
			}
			if entries := must.Get(os.ReadDir(filepath.Dir(n)))(t); len(entries) > 2 {
				t.Errorf("%s: drafts are left: %v", what, entries)
			}
		}
	}
}

// A ring, a link to a folder and a link to a pipe are refused, and stay what they are.
func TestALinkToNoFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must.Do(t, os.Symlink("ring", at("ring")), os.Symlink("b", at("a")), os.Symlink("a", at("b")),
		os.Mkdir(at("dir"), 0o700), os.Symlink("dir", at("todir")), syscall.Mkfifo(at("pipe"), 0o600), os.Symlink("pipe", at("topipe")))
	for i := range maxLinks + 2 { // a chain that no file system follows
		must.Do(t, os.Symlink("c"+strconv.Itoa(i+1), at("c"+strconv.Itoa(i))))
	}
	for _, name := range []string{"ring", "a", "b", "c0"} {
		expect.Error(t, Ready(at(name)), errLinks, name)
		expect.Error(t, increment(at(name)), errLinks, name)
	}
	for _, name := range []string{"todir", "topipe"} {
		expect.Error(t, increment(at(name)), ErrNotRegular, name)
	}
	for _, name := range []string{"ring", "a", "b", "c0", "todir", "topipe"} {
		if info, err := os.Lstat(at(name)); err != nil || info.Mode()&fs.ModeSymlink == 0 {
			t.Errorf("the link %s is %v, %v", name, info, err)
		}
	}
}
