package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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
	return os.WriteFile(filepath.Join(dir, pageName(c)+".1"), page, 0o644)
}

// pageName returns the name of c's manual page, without the section.
func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manPage returns the manual page of c: the page of cobra/doc plus two sections, which are inserted where man-pages(7)
// wants them. Package cobra/doc itself is only in the test. It needs parsers of Markdown and YAML, whose initialization
// would take longer than all of leasehold's own, in each process.
func manPage(c *cobra.Command) ([]byte, error) {
	written := time.Now()
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" { // for reproducible pages
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("invalid SOURCE_DATE_EPOCH: %w", err)
		}
		written = time.Unix(seconds, 0)
	}
	c.InitDefaultHelpCmd()
	c.InitDefaultHelpFlag()
	name := pageName(c)

	var p page
	p.printf(".nh\n.TH %q \"1\" %q \"leasehold\" \"Leasehold\"\n", strings.ToUpper(name), written.Format("Jan 2006"))
	p.section("NAME", name+" - "+c.Short)
	p.section("SYNOPSIS", `\fB`+c.UseLine()+`\fP`)
	p.section("DESCRIPTION", strings.Split(strings.TrimRight(escape(c.Long), "\n"), "\n\n")...)
	p.options("OPTIONS", c.NonInheritedFlags())
	p.options("OPTIONS INHERITED FROM PARENT COMMANDS", c.InheritedFlags())
	p.printf("\n.SH EXIT STATUS\n.EX\n%s.EE\n\n.SH ENVIRONMENT\n.EX\n%s.EE\n", exitHelp, environmentHelp)
	if c.Example != "" {
		p.printf("\n.SH EXAMPLE\n.EX\n%s\n.EE\n\n", escape(c.Example))
	}
	var others []string
	if c.HasParent() {
		others = append(others, pageName(c.Parent()))
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && !sub.IsAdditionalHelpTopicCommand() {
			others = append(others, pageName(sub))
		}
	}
	p.printf("\n.SH SEE ALSO\n\\fB%s(1)\\fP\n", strings.Join(others, `(1)\fP, \fB`))
	return []byte(p.String()), nil
}

// A page is a manual page in the language of roff.
type page struct{ strings.Builder }

func (p *page) printf(format string, args ...any) { fmt.Fprintf(p, format, args...) }

// section adds a section. A block that begins with two spaces or a tab is a table, whose lines are kept. A line that
// begins with #### is a heading, as in cobra's own texts.
func (p *page) section(heading string, blocks ...string) {
	p.printf("\n.SH %s\n", heading)
	inTable := false
	for i, block := range blocks {
		title, isHeading := strings.CutPrefix(block, "#### ")
		isTable := strings.HasPrefix(block, "  ") || strings.HasPrefix(block, "\t")
		switch {
		case isTable && inTable:
			p.printf("\n")
		case isTable:
			p.printf(".EX\n")
		case inTable:
			p.printf(".EE\n\n")
		}
		inTable = isTable
		switch {
		case isTable:
			p.printf("%s\n", unindent(block))
		case isHeading:
			p.printf(".SS %s\n", title)
		case i == 0:
			p.printf("%s\n\n", block)
		default:
			p.printf(".PP\n%s\n\n", block)
		}
	}
	if inTable {
		p.printf(".EE\n\n")
	}
}

// options adds a section with flags.
func (p *page) options(heading string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	var all []string
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		text := `\fB--` + f.Name + `\fP`
		if f.Shorthand != "" {
			text = `\fB-` + f.Shorthand + `\fP, ` + text
		}
		value := "=" + f.DefValue
		if f.Value.Type() == "string" {
			value = fmt.Sprintf("=%q", f.DefValue)
		}
		if f.NoOptDefVal != "" {
			value = "[" + value + "]"
		}
		all = append(all, text+value+"\n\t"+f.Usage)
	})
	p.section(heading, all...)
}

// escape doubles the backslashes, which roff takes for commands. No line may begin with a dot.
func escape(text string) string { return strings.ReplaceAll(text, `\`, `\\`) }

// unindent removes the indentation of a table.
func unindent(table string) string {
	lines := strings.Split(table, "\n")
	for i, line := range lines {
		if rest, ok := strings.CutPrefix(line, "\t"); ok {
			lines[i] = rest
		} else {
			lines[i] = strings.TrimPrefix(line, "  ")
		}
	}
	return strings.Join(lines, "\n")
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
