package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// arguments refuses a command line that does not have least to most arguments, which
// what names, and says what would be right.
func arguments(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && len(args) <= most {
			return nil
		}
		return fmt.Errorf("%s takes %s and nothing else, not %d arguments; see %s --help", cmd.Name(), what, len(args), cmd.CommandPath())
	}
}
