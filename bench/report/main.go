package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	slog.SetLogLoggerLevel(slog.LevelError) // hide the warnings that the killed processes cause
	childMain()
	lockerMain()
	quick := flag.Bool("quick", false, "make few repetitions: this checks that the report works; the figures mean nothing")
	readme := flag.String("readme", "", "replace the table in this README and the plot in its directory")
	draw := flag.String("draw", "", "measure nothing; redraw the plot from the table in this README")
	only := flag.String("only", "", "run only the measurements whose names match this regular expression, and print their rows")
	flag.Parse()
	if *draw != "" {
		if err := drawPlot(*draw); err != nil {
			fmt.Fprintln(os.Stderr, "report:", err)
			os.Exit(1)
		}
		return
	}

	if *only != "" && *readme != "" {
		fmt.Fprintln(os.Stderr, "report: -readme replaces all rows, so it needs all measurements; with -only, paste the rows that are printed")
		os.Exit(2)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *quick, *only, *readme)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, quick bool, only, readme string) error {
	e := full
	if quick {
		e = few
	}
	l := findLab(ctx)
	defer l.stop()
	r := &report{lab: l, effort: e, log: os.Stderr}
	err := r.measure(ctx, only)
	if ctx.Err() != nil {
		return ctx.Err() // don't print half a report
	}
	fmt.Print(r.markdown())
	if readme != "" && err == nil {
		if err = replaceTable(readme, r.ratios()); err == nil {
			err = drawPlot(readme)
		}
	}
	return err
}
