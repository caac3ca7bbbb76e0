package e2e

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Read is the text of a file; a relative path begins at the repository's root.
func Read(t *testing.T, path string) string {
	t.Helper()
	if !filepath.IsAbs(path) {
		path = filepath.Join(root(t), path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// root is the folder of the module's go.mod, above the test's package.
func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil && dir != filepath.Dir(dir) {
		if _, missing := os.Stat(filepath.Join(dir, "go.mod")); missing == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	t.Fatalf("no go.mod above the test: %v", err)
	return ""
}

// Matches are the distinct matches of the first group of pattern, sorted.
func Matches(text, pattern string) []string {
	var found []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// LockedText is text that several goroutines write.
type LockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write appends.
func (l *LockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String is what was written so far.
func (l *LockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// LogOf returns a logger and what it has written.
func LogOf() (*slog.Logger, *LockedText) {
	to := &LockedText{}
	return slog.New(slog.NewTextHandler(to, nil)), to
}

// Repeats joins words with commas. Up to four words that come several times in a row it writes once, with a plus.
func Repeats(words []string) string {
	var out []string
	for i := 0; i < len(words); {
		length, times := 1, 1
		for n := 1; n <= 4; n++ {
			k := 1
			for i+(k+1)*n <= len(words) && slices.Equal(words[i:i+n], words[i+k*n:i+(k+1)*n]) {
				k++
			}
			if k > 1 && k*n > length*times {
				length, times = n, k
			}
		}
		text := strings.Join(words[i:i+length], ", ")
		switch {
		case times > 1 && length > 1:
			text = "(" + text + ")+"
		case times > 1:
			text += "+"
		}
		out, i = append(out, text), i+length*times
	}
	return strings.Join(out, ", ")
}
