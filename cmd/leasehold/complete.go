package main

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/spf13/cobra"
)

const (
	maxCompletions = 1000            // more would not help to choose
	completionTime = 2 * time.Second // someone has pressed Tab, and waits
)

// completeKeys completes each of the first most arguments with the keys for which wanted is
// true. For later arguments it returns the directive later. It reads the store as the status
// command does, and writes nothing.
func (a *app) completeKeys(most int, later cobra.ShellCompDirective, wanted func(dsync.Status) bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) (keys []string, _ cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, later
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		err := a.view(ctx, func(ctx context.Context, v *view) error {
			for st, err := range v.List(ctx, prefix) {
				if err != nil || len(keys) == maxCompletions {
					return err
				}
				if wanted(st) && plain(st.Key) == st.Key { // a shell would split keys with blanks
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

func anyKey(dsync.Status) bool { return true }

func isElection(st dsync.Status) bool { return st.Kind == dsync.KindElection }
