package lint

import (
	"slices"
	"strings"
	"testing"
)

// planted declares the retired words of the tests below in every way there is.
const planted = `package p

type lateEvent struct{ isLate, kept bool }

const tooLate = 1

func (e *lateEvent) recordLate(late int) (isLateToo bool) {
	soLate, other := 1, late
	for lateOne := range 3 {
		_ = lateOne
	}
late:
	for {
		break late
	}
	_, _ = soLate, other
	return lately.Late
}
`

func TestRetiredWordsAreFoundInEveryKindOfIdentifier(t *testing.T) {
	list := []retired{{under: []string{"cuda"}, words: map[string]string{"late": "deferred"}}}
	files := func(path string) []*File {
		f, err := NewFile(path, planted)
		if err != nil {
			t.Fatal(err)
		}
		return []*File{f}
	}
	var names []string
	for _, v := range findRetired(files("cuda/p.go"), list) {
		name, _, _ := strings.Cut(v.Text, ":")
		names = append(names, name)
	}
	slices.Sort(names)
	if want := []string{"isLate", "isLateToo", "late", "late", "lateEvent", "lateOne", "recordLate", "soLate", "tooLate"}; !slices.Equal(names, want) {
		t.Errorf("found in %q, want %q", names, want)
	}
	for path, want := range map[string]int{"cuda/late_end.go": 10, "cuda/p_test.go": 0, "cuda/sim/p.go": 0, "core/p.go": 0} {
		if got := findRetired(files(path), list); len(got) != want {
			t.Errorf("%s: %d violations, want %d: %v", path, len(got), want, got)
		}
	}
}

func TestRetiredWordsHaveScopesAndMayBeSeveral(t *testing.T) {
	file := func(path, declares string) []*File {
		f, err := NewFile(path, "package p\n\nvar "+declares+" int\n")
		if err != nil {
			t.Fatal(err)
		}
		return []*File{f}
	}
	everywhere := []retired{{under: []string{"./..."}, words: map[string]string{"late event": "deferred record"}}}
	below := []retired{{under: []string{"cuda/..."}, words: map[string]string{"late": "deferred"}}}
	for name, c := range map[string]struct {
		files []*File
		list  []retired
		want  int
	}{
		"both words":      {file("core/p.go", "theLateEvents, lateEvent"), everywhere, 1},
		"one of them":     {file("core/p.go", "late, event"), everywhere, 0},
		"the root itself": {file("p.go", "lateEvent"), everywhere, 1},
		"below":           {file("cuda/sim/p.go", "late"), below, 1},
		"beside":          {file("cudart/p.go", "late"), below, 0},
	} {
		if got := findRetired(c.files, c.list); len(got) != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestWordsOfAnIdentifier(t *testing.T) {
	for name, want := range map[string]string{
		"late": "late", "lateEvent": "late event", "LateEvent": "late event", "late_event": "late event", "SQLLate": "sql late", "streamID": "stream id", "_": "", "later": "later",
	} {
		if got := strings.Join(wordsOf(name), " "); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestEveryRetiredWordIsFound plants each word of the list where it is retired.
func TestEveryRetiredWordIsFound(t *testing.T) {
	for _, r := range retiredWords {
		for word := range r.words {
			folder := strings.TrimSuffix(strings.TrimPrefix(r.under[0], "./"), "/...")
			if folder == "..." {
				folder = "core"
			}
			f, err := NewFile(folder+"/p.go", "package p\n\nvar "+strings.ReplaceAll(word, " ", "_")+" int\n")
			if err != nil {
				t.Fatal(err)
			}
			if got := Retired([]*File{f}); len(got) == 0 {
				t.Errorf("%q was not found in %s", word, folder)
			}
		}
	}
}
