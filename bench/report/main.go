package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	slog.SetLogLoggerLevel(slog.LevelError) // crashes make sessions warn
	childMain()
	quick := flag.Bool("quick", false, "few repetitions: whether it works, not what comes out")
	out := flag.String("o", "", "write the report to this file as well")
	readme := flag.String("readme", "", "replace the table in this README, and the plot beside it")
	draw := flag.String("draw", "", "measure nothing: draw the plot again from the table in this README")
	only := flag.String("only", "", "only the measures whose names match this regular expression")
	flag.Parse()
	if *draw != "" {
		if err := drawPlot(*draw); err != nil {
			fmt.Fprintln(os.Stderr, "report:", err)
			os.Exit(1)
		}
		return
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *quick, *only, *out, *readme)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, quick bool, only, out, readme string) error {
	e := full
	if quick {
		e = few
	}
	l := findLab(ctx)
	defer l.stop()
	r := &report{lab: l, effort: e, log: os.Stderr}
	err := r.measure(ctx, only)
	if ctx.Err() != nil {
		return ctx.Err() // half a report is none
	}
	text := r.markdown()
	fmt.Print(text)
	if out != "" {
		err = errors.Join(err, os.WriteFile(out, []byte(text), 0o644))
	}
	if readme != "" && err == nil {
		if err = replaceTable(readme, r.ratios()); err == nil && only == "" {
			err = drawPlot(readme)
		}
	}
	return err
}
