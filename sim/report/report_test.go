package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"pegasus/sim"
)

const text = `
id = "X"
title = "Two <programs> & more"
time = "3s"
claims = ["they share"]
accelerator = [{name = "gpu"}]
domain = [{name = "a", workload = "LUD"}, {name = "b", workload = "HW"}]
plan = [{name = "RR", policy = "rr"}, {name = "FIFO", policy = "fifo"}]
chart = [
  {kind = "box", title = "Boxes", unit = "1/s"},
  {kind = "time", title = "Lines", unit = "%", plans = ["RR"]},
  {kind = "bar", metric = "share", title = "Bars", unit = "%", domains = ["a", "b"]},
]
row = [{text = "works", value = "RR.a.share", min = 1.0}, {text = "fails", value = "RR.a.share", max = 1.0}]
`

// The page is well-formed, has every figure, row and verdict, and loads no other resource.
func TestPage(t *testing.T) {
	sc, err := sim.Parse("x.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r, err := sim.Judge(sc, 1, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Write(&out, []Scenario{{Scenario: sc, Result: r}, {Scenario: &sim.Scenario{ID: "B", Bench: "elsewhere"}}}); err != nil {
		t.Fatal(err)
	}
	page := out.String()
	if n := strings.Count(page, "<figure"); n != 3 {
		t.Errorf("%d figures, not 3", n)
	}
	for _, want := range []string{"Two &lt;programs&gt; &amp; more", "Published: they share.", `class="holds"`, `class="fails"`, "Boxes", "Lines", "Bars", "elsewhere"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s", want)
		}
	}
	for _, no := range []string{"<script", "src=", "@import"} {
		if strings.Contains(page, no) {
			t.Errorf("the page has %s", no)
		}
	}
	for _, part := range strings.Split(page, "<svg")[1:] {
		d := xml.NewDecoder(strings.NewReader("<svg" + part[:strings.Index(part, "</svg>")+6]))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
}
