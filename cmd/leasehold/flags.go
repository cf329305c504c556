package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError returns the error for a flag that can't be parsed: what is wrong, and what
// would be right. The errors of package pflag say only the former, each in its own style.
func flagError(cmd *cobra.Command, err error) error {
	var (
		unknown *pflag.NotExistError
		missing *pflag.ValueRequiredError
		invalid *pflag.InvalidValueError
	)
	switch {
	case errors.As(err, &unknown):
		name := "--" + unknown.GetSpecifiedName()
		if unknown.GetSpecifiedShortnames() != "" {
			name = "-" + unknown.GetSpecifiedName()
		}
		return fmt.Errorf("%s has no flag %s; see %[1]s --help", cmd.CommandPath(), name)
	case errors.As(err, &missing):
		return fmt.Errorf("--%s needs a value; see %s --help", missing.GetFlag().Name, cmd.CommandPath())
	case errors.As(err, &invalid):
		want := "a number"
		switch invalid.GetFlag().Value.Type() {
		case "duration":
			want = "a duration, such as 30s or 1m30s"
		case "bool":
			want = "true or false"
		}
		return fmt.Errorf("--%s is %q; it must be %s", invalid.GetFlag().Name, invalid.GetValue(), want)
	}
	return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
}

// refuseNegative returns an error for a negative duration, which no flag can have.
func refuseNegative(cmd *cobra.Command, _ []string) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "duration" && strings.HasPrefix(f.Value.String(), "-") {
			err = fmt.Errorf("--%s is %v; it must not be negative", f.Name, f.Value)
		}
	})
	return err
}
