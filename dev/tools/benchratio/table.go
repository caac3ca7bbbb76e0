package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// printTable prints a row for each parent and a column for each last element, whatever
// package a line came from. It is an error if no result is in the column base.
func printTable(out io.Writer, r *results, base string) error {
	var rows, columns []string
	cells := map[[2]string]string{} // row and column to the name of the benchmark
	for _, name := range r.names {
		parent, leaf := split(name)
		if parent == "" {
			continue
		}
		_, row, _ := strings.Cut(parent, " ")
		if !slices.Contains(rows, row) {
			rows = append(rows, row)
		}
		if !slices.Contains(columns, leaf) {
			columns = append(columns, leaf)
		}
		cells[[2]string{row, leaf}] = name
	}
	if !slices.Contains(columns, base) {
		return fmt.Errorf("no result of %s, to which the others would be compared", base)
	}
	fmt.Fprintf(out, "ns, median (worst) of the runs, and times the median of %s:\n\n", base)
	fmt.Fprintf(out, "| | %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat(" --- |", len(columns)+1))
	for _, row := range rows {
		texts := []string{row}
		for _, column := range columns {
			texts = append(texts, r.cell(cells[[2]string{row, column}], cells[[2]string{row, base}]))
		}
		if _, err := fmt.Fprintf(out, "| %s |\n", strings.Join(texts, " | ")); err != nil {
			return err
		}
	}
	return nil
}

// cell is the text of a figure; either name may be empty, for there is none.
func (r *results) cell(name, base string) string {
	if name == "" {
		return "–"
	}
	median := r.median(name).ns
	text := fmt.Sprintf("%s (%s)", short(median), short(r.worst(name)))
	if base != "" && base != name && r.median(base).ns > 0 {
		text += fmt.Sprintf(" %.2f×", median/r.median(base).ns)
	}
	return text
}

// short has a digit behind the point where one matters.
func short(ns float64) string {
	if ns < 10 {
		return fmt.Sprintf("%.1f", ns)
	}
	return fmt.Sprintf("%.0f", ns)
}
