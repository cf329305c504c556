package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// A watch determines whether and how often a command refreshes its output.
type watch struct {
	on       bool
	interval time.Duration
}

// leastInterval bounds the load that a watch puts on the server.
const leastInterval = 100 * time.Millisecond

// watching calls the function show with a view of the store. Without --watch it does so once, with --watch repeatedly
// until SIGINT or SIGTERM. With --watch, each output replaces the previous one if the display can move its cursor. show
// must print through the app that it gets.
func (a *app) watching(cmd *cobra.Command, w watch, show func(context.Context, *app, *view) error) error {
	if !w.on {
		if cmd.Flags().Changed("interval") {
			return usagef("--interval has no effect without --watch")
		}
		return a.view(cmd.Context(), func(ctx context.Context, v *view) error { return show(ctx, a, v) })
	}
	if w.interval < leastInterval {
		return usagef("--interval is %v; it must be at least %v", w.interval, leastInterval)
	}
	return untilSignal(cmd.Context(), func(ctx context.Context) error {
		err := a.view(ctx, func(ctx context.Context, v *view) error {
			return a.repeat(ctx, w, title(cmd, w, v.target), func(ctx context.Context, a *app) error { return show(ctx, a, v) })
		})
		if ctx.Err() != nil {
			return nil // a signal is the normal end of a watch
		}
		return err
	})
}

// title returns the first line of a frame: the command, its refresh interval and the deployment
// that it reads.
func title(cmd *cobra.Command, w watch, t target) string {
	args := make([]string, 0, cmd.Flags().NArg())
	for _, arg := range cmd.Flags().Args() {
		args = append(args, " "+plain(arg))
	}
	text := fmt.Sprintf("%s%s, every %v", cmd.CommandPath(), strings.Join(args, ""), w.interval)
	if t.uri != "" {
		text += ", " + plain(t.String())
	}
	return text
}

// repeat calls show again and again, with pauses of w.interval, until ctx ends. If the first reading fails, repeat returns the
// error, unless the key does not exist. It prints other errors and continues, because the server or
// the key may come back.
func (a *app) repeat(ctx context.Context, w watch, title string, show func(context.Context, *app) error) error {
	wait := time.NewTimer(0)
	defer wait.Stop()
	for first := true; ; first = false {
		select {
		case <-wait.C:
		case <-ctx.Done():
			return nil
		}
		d := a.display()
		var text bytes.Buffer
		frame := *a
		frame.stdout, frame.frame = &text, &d
		err := show(ctx, &frame)
		var f *failure
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first && !(errors.As(err, &f) && f.status == exitNothing):
			text.WriteTo(a.stdout) // show what was read before the error
			return err
		case err != nil:
			fmt.Fprintln(&text, d.paint(bad, "leasehold: "+oneLine(err)))
		}
		if err := a.redraw(d, title, text.String(), first); err != nil {
			return err
		}
		wait.Reset(w.interval)
	}
}

// redraw prints a frame. If the cursor can be moved, the frame replaces the previous one; otherwise it is below it.
func (a *app) redraw(d display, title, text string, first bool) error {
	if !d.cursor {
		if !first && !strings.HasPrefix(text, "{") { // no blank line between JSON objects
			text = "\n" + text
		}
		_, err := io.WriteString(a.stdout, text)
		return err
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	lines = append([]string{d.paint(faint, title+", "+time.Now().UTC().Format("15:04:05 UTC")), ""}, lines...)
	if room := d.height - 1; d.height > 0 && len(lines) > room { // keep the last line free for the cursor
		more := len(lines) - room + 1
		lines = append(lines[:max(0, room-1)], d.paint(faint, fmt.Sprintf("and %d more lines", more)))
	}
	var b strings.Builder
	if first {
		b.WriteString("\x1b[2J")
	}
	b.WriteString("\x1b[H")
	for _, line := range lines {
		b.WriteString(clip(line, d.width) + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	_, err := io.WriteString(a.stdout, b.String())
	return err
}

// clip cuts a line to a width. It keeps escape sequences for colours, which have no width.
func clip(line string, most int) string {
	if most == 0 {
		return line
	}
	var b strings.Builder
	escape := false
	for _, r := range line {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = r != 'm'
		default:
			if most -= runeWidth(r); most < 0 {
				continue
			}
		}
		b.WriteRune(r)
	}
	return b.String()
}
