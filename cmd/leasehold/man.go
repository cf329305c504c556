package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// newMan returns the man command, for packagers.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages into a directory",
		Long: `Write the manual pages, leasehold.1 and one for each command, into the directory DIR,
which is created if it does not exist.`,
		Example: `  leasehold man /usr/local/share/man/man1`,
		Args:    arguments(1, 1, "one DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("the directory can't be created: %w", err)
			}
			return writePages(cmd.Root(), args[0])
		},
	}
}

// writePages writes the pages of c and its subcommands into a directory.
func writePages(c *cobra.Command, dir string) error {
	for _, sub := range c.Commands() {
		if !sub.IsAvailableCommand() {
			continue // hidden, or only a help topic
		}
		if err := writePages(sub, dir); err != nil {
			return err
		}
	}
	page, err := manPage(c)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"), page, 0o644)
}

// manPage returns the manual page of c. It is cobra's page plus the sections that cobra does not know, which are
// inserted where man-pages(7) wants them.
func manPage(c *cobra.Command) ([]byte, error) {
	c.DisableAutoGenTag = true // no date, so that the page is reproducible
	long := c.Long
	c.Long = indentTables(long)
	defer func() { c.Long = long }()
	var page bytes.Buffer
	if err := doc.GenMan(c, &doc.GenManHeader{Section: "1", Manual: "Leasehold", Source: "leasehold"}, &page); err != nil {
		return nil, err
	}
	next := ".SH EXAMPLE\n"
	if c.Example == "" {
		next = ".SH SEE ALSO\n"
	}
	own := ".SH EXIT STATUS\n.EX\n" + exitHelp + ".EE\n\n.SH ENVIRONMENT\n.EX\n" + environmentHelp + ".EE\n\n" + next
	return bytes.Replace(page.Bytes(), []byte(next), []byte(own), 1), nil
}

// environmentHelp is the section ENVIRONMENT of all pages. Neither environmentHelp nor exitHelp may
// contain a backslash or a line that begins with a dot: roff would take them for commands.
const environmentHelp = `leasehold reads

  MONGODB_URI      the connection string, if there is no --uri

and sets for the command of run, once and elect

  LEASEHOLD_KEY    the key, or the election's name
  LEASEHOLD_TOKEN  the fencing token: greater than that of every earlier holder
  LEASEHOLD_TERM   with elect: the number of the term
  LEASEHOLD_TICK   with run --tick: the tick, in RFC 3339
`

// indentTables indents tables by four spaces instead of two: cobra generates the pages from
// Markdown, which needs four.
func indentTables(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "  ") {
			lines[i] = "  " + line
		}
	}
	return strings.Join(lines, "\n")
}
