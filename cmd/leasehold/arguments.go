package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError returns an error that says what is wrong with a flag and what would be right. Package
// pflag's errors say only what is wrong, each in a different style.
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

// refuseNegative returns an error for a negative duration, which no flag allows.
func refuseNegative(cmd *cobra.Command, _ []string) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "duration" && strings.HasPrefix(f.Value.String(), "-") {
			err = fmt.Errorf("--%s is %v; it must not be negative", f.Name, f.Value)
		}
	})
	return err
}

const (
	maxCompletions = 1000            // nobody reads a longer list
	completionTime = 2 * time.Second // short, because the user has pressed Tab and is waiting
)

// completeKeys returns a function that completes the first argument with keys for which wanted returns true. For any
// later argument, the function offers no keys, and returns the given directive. Like the status command, the function
// only reads the store.
func (a *app) completeKeys(later cobra.ShellCompDirective, wanted func(admin.Status) bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) (keys []string, _ cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, later
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		err := a.view(ctx, func(ctx context.Context, v *view) error {
			for st, err := range v.List(ctx, prefix) {
				if err != nil || len(keys) == maxCompletions {
					return err
				}
				if wanted(st) && plain(st.Key) == st.Key { // a shell would split a key that contains blanks
					keys = append(keys, st.Key)
				}
			}
			return nil
		})
		if err != nil && len(keys) == 0 {
			return nil, cobra.ShellCompDirectiveError
		}
		return keys, cobra.ShellCompDirectiveNoFileComp
	}
}

func anyKey(admin.Status) bool { return true }

// isLock reports whether the run command can use the key.
func isLock(st admin.Status) bool {
	return st.Kind != driver.KindElection && st.Kind != driver.KindOnce
}

func isElection(st admin.Status) bool { return st.Kind == driver.KindElection }
