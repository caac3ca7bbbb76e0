package compose

import (
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

const dockerfile = "examples/service/Dockerfile"

func stages(t *testing.T) []instructions.Stage {
	t.Helper()
	file, err := parser.Parse(strings.NewReader(read(t, dockerfile)))
	must(t, err)
	stages, _, err := instructions.Parse(file.AST, nil)
	must(t, err)
	if len(stages) != 2 {
		t.Fatalf("%d stages", len(stages))
	}
	return stages
}

// commandsOf are the instructions of one kind.
func commandsOf[C instructions.Command](s instructions.Stage) (found []C) {
	for _, c := range s.Commands {
		if c, ok := c.(C); ok {
			found = append(found, c)
		}
	}
	return found
}

func TestTheImageIsNotRootsAndHasALibcOfTheDriversKind(t *testing.T) {
	all := stages(t)
	for _, s := range all {
		if !regexp.MustCompile(`^(golang:[0-9.]+-bookworm|debian:bookworm-slim)$`).MatchString(s.BaseName) {
			t.Errorf("the base %s is not pinned, or has no glibc", s.BaseName)
		}
	}
	users := commandsOf[*instructions.UserCommand](all[1])
	if len(users) != 1 || !regexp.MustCompile(`^[1-9][0-9]*:[1-9][0-9]*$`).MatchString(users[0].User) {
		t.Errorf("users: %+v", users) // by number: Kubernetes cannot tell of a name whether it is root
	}
	version := regexp.MustCompile(`(?m)^go ([0-9]+\.[0-9]+)`).FindStringSubmatch(read(t, "go.mod"))[1]
	if all[0].BaseName != "golang:"+version+"-bookworm" {
		t.Errorf("%s builds a module of Go %s", all[0].BaseName, version)
	}
}

// context copies what the builder would get: the files of the repository that
// .dockerignore does not leave out.
func context(t *testing.T) (dir string) {
	t.Helper()
	patterns, err := ignorefile.ReadAll(strings.NewReader(read(t, ".dockerignore")))
	must(t, err)
	ignored, err := patternmatcher.New(patterns)
	must(t, err)
	dir = t.TempDir()
	must(t, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == root {
			return err
		}
		rel, err := filepath.Rel(root, name)
		must(t, err)
		skip, err := ignored.MatchesOrParentMatches(filepath.ToSlash(rel))
		must(t, err)
		switch {
		case skip && d.IsDir():
			return fs.SkipDir
		case skip:
			return nil
		case d.IsDir():
			return os.MkdirAll(filepath.Join(dir, rel), 0o750)
		}
		text, err := os.ReadFile(name)
		must(t, err)
		return os.WriteFile(filepath.Join(dir, rel), text, 0o600)
	}))
	return dir
}

// build runs the Dockerfile's build and returns the folder with the programs.
func build(t *testing.T) (out string) {
	t.Helper()
	out = t.TempDir()
	for _, c := range commandsOf[*instructions.RunCommand](stages(t)[0]) {
		line := strings.Join(c.CmdLine, " ")
		if !strings.Contains(line, "go build") {
			continue // go mod download would fetch what the tests need, too
		}
		if !strings.Contains(line, "CGO_ENABLED=0 ") {
			t.Errorf("with cgo: %s", line)
		}
		run := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(line, "/out/", out+"/"))
		run.Dir = context(t)
		if text, err := run.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, text)
		}
	}
	return out
}

func TestWhatTheDockerfileBuildsIsWhatItsImageRuns(t *testing.T) {
	out, image := build(t), stages(t)[1]
	copied := commandsOf[*instructions.CopyCommand](image)
	if !slices.ContainsFunc(copied, func(c *instructions.CopyCommand) bool {
		return c.From == "build" && slices.Equal(c.SourcePaths, []string{"/out/"}) && c.DestPath == "/usr/local/bin/"
	}) {
		t.Errorf("the programs are not copied: %+v", copied)
	}
	entry, check := commandsOf[*instructions.EntrypointCommand](image), commandsOf[*instructions.HealthCheckCommand](image)
	if len(entry) != 1 || len(check) != 1 || check[0].Health.Test[0] != "CMD" || !strings.HasPrefix(check[0].Health.Test[2], "-check=") {
		t.Fatalf("%+v %+v", entry, check)
	}
	project := mustLoad(t, composeFile)
	lines := map[string][]string{
		"entry point":  append(slices.Clone(entry[0].CmdLine), commandsOf[*instructions.CmdCommand](image)[0].CmdLine...),
		"health check": check[0].Health.Test[1:],
	}
	for _, name := range []string{"service", "incident"} {
		lines[name] = append(slices.Clone(entry[0].CmdLine), project.Services[name].Command...)
	}
	for _, name := range []string{"load", "incident-load"} {
		lines[name] = append(slices.Clone(project.Services[name].Entrypoint), project.Services[name].Command...)
	}
	for name, words := range lines {
		program := filepath.Join(out, strings.TrimPrefix(words[0], "/usr/local/bin/"))
		if path.Dir(words[0]) != "/usr/local/bin" {
			t.Errorf("%s: %q is not copied", name, words[0])
		}
		// Flags before -h are read, and refused if they are wrong.
		if text, err := exec.CommandContext(t.Context(), program, append(words[1:], "-h")...).CombinedOutput(); err != nil {
			t.Errorf("%s: %q: %v\n%s", name, words, err, text)
		}
	}
	if text, err := exec.CommandContext(t.Context(), filepath.Join(out, "service"), "-no-such-flag", "-h").CombinedOutput(); err == nil {
		t.Errorf("a wrong flag is not seen:\n%s", text)
	}
}

// A new volume has the owner of the folder that it covers: were that root, the
// first incident could not be written.
func TestTheVolumeForIncidentsIsTheServicesToWrite(t *testing.T) {
	s := mustLoad(t, composeFile).Services["incident"]
	if len(s.Volumes) != 1 || s.Volumes[0].Type != types.VolumeTypeVolume || s.Volumes[0].ReadOnly || s.Volumes[0].Target != *s.Environment["FENCEPOST_INCIDENTS"] {
		t.Fatalf("%+v, and incidents go to %q", s.Volumes, *s.Environment["FENCEPOST_INCIDENTS"])
	}
	target, all := s.Volumes[0].Target, stages(t)
	made := slices.ContainsFunc(commandsOf[*instructions.RunCommand](all[0]), func(c *instructions.RunCommand) bool {
		return strings.Join(c.CmdLine, " ") == "mkdir -p /folders/"+path.Base(target)
	})
	copied := slices.ContainsFunc(commandsOf[*instructions.CopyCommand](all[1]), func(c *instructions.CopyCommand) bool {
		return c.From == "build" && slices.Equal(c.SourcePaths, []string{"/folders/"}) && c.DestPath == path.Dir(target)+"/" &&
			c.Chown == commandsOf[*instructions.UserCommand](all[1])[0].User
	})
	if !made || !copied {
		t.Errorf("the image has no folder %s of its user: made %v, copied %v", target, made, copied)
	}
}
