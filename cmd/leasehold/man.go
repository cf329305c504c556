package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// newMan returns the command man, which packagers use.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual's pages into a folder",
		Long: `Write the manual's pages, leasehold.1 and one for each command, into the folder
DIR, which is made if it is not there.`,
		Example: `  leasehold man /usr/local/share/man/man1`,
		Args:    arguments(1, 1, "one DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("the folder can't be made: %w", err)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true // pages are the same whenever they are made
			setTables(root)
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Manual: "Leasehold", Source: "leasehold"}, args[0])
		},
	}
}

// setTables marks what is indented as such for the pages, which are made from
// Markdown: four blanks there, two suffice for a terminal.
func setTables(c *cobra.Command) {
	lines := strings.Split(c.Long, "\n")
	for i, text := range lines {
		if strings.HasPrefix(text, "  ") {
			lines[i] = "  " + text
		}
	}
	c.Long = strings.Join(lines, "\n")
	for _, sub := range c.Commands() {
		setTables(sub)
	}
}
