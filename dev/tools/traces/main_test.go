package main

import (
	"os"
	"testing"
)

func TestThePageIsMadeFromTheContract(t *testing.T) {
	text, err := os.ReadFile("../../../docs/traces.md")
	if err != nil {
		t.Fatal(err)
	}
	made, err := document(string(text))
	if err != nil || made != string(text) {
		t.Errorf("docs/traces.md is not as made from the contract (%v): run go -C dev run ./tools/traces", err)
	}
	if _, err := document("a page without marks"); err == nil {
		t.Error("a page without marks was taken")
	}
}
