package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The committed plot shows the figures of the README's table. When the table changes, redraw the plot.
func TestPlotIsOfTheTable(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := plot(string(readme))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join("..", plotName))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("bench/%s does not show the table of bench/README.md; run: go run ./bench/report -draw bench/README.md", plotName)
	}
}

// The first figure of each cell of the row is written beside a bar of proportional length.
func TestPlot(t *testing.T) {
	text := tableBegin +
		"| " + plotRow + " | two raw writes | 0.50; 3.00 | 1.00; 3.00 | – | 2.00; 3.00 | not here | 0.25; 3.00 |\n" + tableEnd
	svg, err := plot(text)
	if err != nil {
		t.Fatal(err)
	}
	type element struct {
		Width string `xml:"width,attr"`
		Fill  string `xml:"fill,attr"`
	}
	var bars, texts []string
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		start, ok := token.(xml.StartElement)
		switch {
		case ok && start.Name.Local == "rect":
			var e element
			if err := d.DecodeElement(&e, &start); err != nil {
				t.Fatal(err)
			}
			bars = append(bars, e.Width)
		case ok && start.Name.Local == "text":
			var text string
			if err := d.DecodeElement(&text, &start); err != nil {
				t.Fatal(err)
			}
			texts = append(texts, text)
		}
	}
	if got, want := strings.Join(bars[1:], " "), "110.0 220.0 440.0 55.0"; got != want {
		t.Errorf("the bars are %s pixels long, want %s", got, want)
	}
	for _, figure := range []string{"0.50", "1.00", "2.00", "0.25"} {
		if !strings.Contains(strings.Join(texts, "\n")+"\n", "\n"+figure+"\n") {
			t.Errorf("the figure %s is missing in %q", figure, texts)
		}
	}
}

func TestPlotWithoutARow(t *testing.T) {
	for _, text := range []string{"", tableBegin + tableEnd, tableBegin + "| " + plotRow + " | a | 1 |\n" + tableEnd} {
		if _, err := plot(text); err == nil {
			t.Errorf("plot(%q) returned no error", text)
		}
	}
}
