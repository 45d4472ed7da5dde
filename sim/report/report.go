// Package report writes what came of scenarios as one HTML page with figures, which
// needs neither a server nor a script.
package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"pegasus/sim"
)

//go:embed page.html
var page string

var layout = template.Must(template.New("page").Funcs(template.FuncMap{
	"number": func(f float64) string { return fmt.Sprintf("%.4g", f) },
	"bound":  bound,
}).Parse(page))

// Scenario is a section of the page.
type Scenario struct {
	*sim.Scenario
	Result  *sim.Result // nil: it is measured elsewhere
	Figures []Figure
}

// Figure is a drawing with its caption.
type Figure struct {
	Title string
	SVG   template.HTML
}

// Write writes the page.
func Write(w io.Writer, all []Scenario) error {
	for i := range all {
		if all[i].Result == nil {
			continue
		}
		for _, c := range all[i].Charts {
			f, err := figure(all[i].Result, &c)
			if err != nil {
				return fmt.Errorf("%s: figure %q: %w", all[i].ID, c.Title, err)
			}
			all[i].Figures = append(all[i].Figures, f)
		}
	}
	return layout.Execute(w, all)
}

func bound(v sim.Verdict) string {
	switch {
	case v.Min != nil && v.Max != nil:
		return fmt.Sprintf("%.4g … %.4g", *v.Min, *v.Max)
	case v.Min != nil:
		return fmt.Sprintf("≥ %.4g", *v.Min)
	default:
		return fmt.Sprintf("≤ %.4g", *v.Max)
	}
}

// The size of a figure, in points.
const (
	width  = 840
	height = 300
)

func figure(r *sim.Result, c *sim.Chart) (Figure, error) {
	p := plot.New()
	sans(p)
	p.Y.Label.Text = c.Unit
	p.Y.Min = 0
	p.Add(plotter.NewGrid())
	var err error
	switch c.Kind {
	case "box":
		err = boxes(p, r, c)
	case "time":
		err = lines(p, r, c)
	case "bar":
		err = bars(p, r, c)
	}
	if err != nil {
		return Figure{}, err
	}
	canvas := vgsvg.New(width, height)
	p.Draw(draw.Crop(draw.New(canvas), 0, -vg.Points(12), vg.Points(4), -vg.Points(4)))
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return Figure{}, err
	}
	text := out.String()
	if i := strings.Index(text, "<svg"); i > 0 {
		text = text[i:]
	}
	text = strings.ReplaceAll(text, "font-family:Liberation Sans", "font-family:Liberation Sans,Arial,sans-serif")
	return Figure{c.Title, template.HTML(text)}, nil
}

// sans makes all text of a plot legible on a screen.
func sans(p *plot.Plot) {
	face := func(size float64) font.Font {
		return font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Points(size)}
	}
	p.X.Label.TextStyle.Font, p.Y.Label.TextStyle.Font = face(12), face(12)
	p.X.Tick.Label.Font, p.Y.Tick.Label.Font = face(11), face(11)
	p.Legend.TextStyle.Font = face(11)
	p.Legend.Top = true
}

// chosen are the names that a chart shows: those it lists, or all.
func chosen(all, listed []string) []string {
	if len(listed) > 0 {
		return listed
	}
	return all
}

// domains of a plan's runs.
func domains(r *sim.Result, plan string, c *sim.Chart) []string {
	var all []string
	for name := range r.Series[plan] {
		all = append(all, name)
	}
	slices.Sort(all)
	return chosen(all, c.Domains)
}

// boxes shows, by plan, a box for each domain: half of its runs, their median, and
// whiskers.
func boxes(p *plot.Plot, r *sim.Result, c *sim.Chart) error {
	var labels []string
	at := 0.0
	for _, plan := range chosen(r.Plans(), c.Plans) {
		all := domains(r, plan, c)
		for i, d := range all {
			if len(r.Series[plan][d].Work) == 0 {
				continue
			}
			b, err := plotter.NewBoxPlot(vg.Points(12), at, plotter.Values(r.Series[plan][d].Work))
			if err != nil {
				return err
			}
			b.FillColor = plotutil.SoftColors[i%len(plotutil.SoftColors)]
			p.Add(b)
			if i == len(all)/2 {
				d += "\n" + plan
			}
			labels = append(labels, d)
			at++
		}
	}
	p.NominalX(labels...)
	p.X.Min, p.X.Max = -0.5, at-0.5
	p.Y.Min = 0
	return nil
}

// lines shows the share of each domain over time, of one plan.
func lines(p *plot.Plot, r *sim.Result, c *sim.Chart) error {
	p.X.Label.Text = "seconds"
	n := 0
	for _, plan := range chosen(r.Plans(), c.Plans) {
		for _, d := range domains(r, plan, c) {
			var xy plotter.XYs
			for i, v := range r.Series[plan][d].Share {
				xy = append(xy, plotter.XY{X: float64(i), Y: v})
			}
			if len(xy) == 0 {
				continue
			}
			l, err := plotter.NewLine(xy)
			if err != nil {
				return err
			}
			l.Color = plotutil.DarkColors[n%len(plotutil.DarkColors)]
			l.Width = vg.Points(1.5)
			p.Add(l)
			p.Legend.Add(plan+" "+d, l)
			n++
		}
	}
	p.Y.Min, p.Y.Max = 0, 115
	return nil
}

// bars shows a metric of each domain, by plan.
func bars(p *plot.Plot, r *sim.Result, c *sim.Chart) error {
	plans := chosen(r.Plans(), c.Plans)
	names := c.Domains
	if len(names) == 0 {
		names = []string{""}
	}
	w := vg.Points(min(36, 520/float64(len(plans)*len(names))))
	for i, d := range names {
		var values plotter.Values
		for _, plan := range plans {
			values = append(values, r.Metrics[plan][d][c.Metric])
		}
		b, err := plotter.NewBarChart(values, w)
		if err != nil {
			return err
		}
		b.Color = plotutil.SoftColors[i%len(plotutil.SoftColors)]
		b.LineStyle.Width = 0
		b.Offset = w * vg.Length(float64(i)-float64(len(names)-1)/2)
		p.Add(b)
		if d != "" {
			p.Legend.Add(d, b)
		}
	}
	p.NominalX(plans...)
	p.X.Min, p.X.Max = -0.5, float64(len(plans))-0.5
	p.Y.Min = 0
	p.Y.Max *= 1.15
	return nil
}
