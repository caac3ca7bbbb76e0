package compose

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"go.yaml.in/yaml/v3"
)

// root is the repository's top.
const root = "../.."

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// load loads Compose files, the later over the earlier, with the services of all
// profiles.
func load(t *testing.T, files ...string) (*types.Project, error) {
	t.Helper()
	return loadProfiles(t, []string{"*"}, files...)
}

func loadProfiles(t *testing.T, profiles []string, files ...string) (*types.Project, error) {
	t.Helper()
	dir, err := filepath.Abs(root)
	must(t, err)
	options, err := cli.NewProjectOptions(files, cli.WithWorkingDirectory(dir), cli.WithProfiles(profiles))
	must(t, err)
	return options.LoadProject(t.Context())
}

func mustLoad(t *testing.T, names ...string) *types.Project {
	t.Helper()
	var files []string
	for _, name := range names {
		files = append(files, filepath.Join(root, name))
	}
	project, err := load(t, files...)
	must(t, err)
	return project
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	must(t, err)
	return string(text)
}

// parse reads a file of the repository strictly: a name that to does not have
// is an error.
func parse(t *testing.T, name string, to any) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(read(t, name)))
	d.KnownFields(true)
	if err := d.Decode(to); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}
