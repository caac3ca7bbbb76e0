// Package api lists what the module exports: every name that a program outside of it
// can write, with its signature, a line each. The listing is checked in, a file for
// each package in testdata, so that a change of it is seen in review:
//
//	go run ./internal/repo/api/write
//
// It is made from the text of the declarations, of all systems' files, so types are
// written as the source writes them.
package api
