// Package lint holds the rules of this repository that no general linter
// knows, as functions from source text to violations. Its tests apply them to
// the repository, and each rule to a small bad example, so that a rule that
// stopped finding anything is noticed.
//
// The rules and their reasons are in CONTRIBUTING.md.
package lint
