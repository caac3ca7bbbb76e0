// Package compose holds the tests of what runs in containers: the Compose
// files are loaded with Compose's own loader, the Dockerfile with BuildKit's
// parser, and what the Dockerfile would build is built from the files that
// .dockerignore leaves. No container is run.
package compose
