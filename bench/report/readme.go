package main

import (
	"fmt"
	"os"
	"strings"
)

// The table in the README is what is between these lines.
const (
	tableBegin = "<!-- bench:begin -->\n"
	tableEnd   = "<!-- bench:end -->\n"
)

// replaceTable replaces the table in the file.
func replaceTable(path, table string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), tableBegin)
	_, after, end := strings.Cut(rest, tableEnd)
	if !ok || !end {
		return fmt.Errorf("%s has no line %q followed by one %q", path, strings.TrimSpace(tableBegin), strings.TrimSpace(tableEnd))
	}
	return os.WriteFile(path, []byte(before+tableBegin+"\n"+table+"\n"+tableEnd+after), 0o644)
}
