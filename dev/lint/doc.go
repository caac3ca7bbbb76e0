// Package lint checks what no linter knows of this repository: that the product links no test
// code, that decorators embed no upstream, and that code, links and names in documents are right.
package lint
