// Package report writes the results of scenarios as one HTML page with figures, which needs neither a server
// nor a script.
//
// Callers: the pegasus command.
//
// Trust boundary: none; scenarios are the user's own files, and their texts are escaped.
package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"image/color"
	"io"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
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
	Result  *sim.Result // nil: measured elsewhere
	Figures []Figure
}

// Figure is a drawing with its caption and the key to its colours.
type Figure struct {
	Title string
	Keys  []Key
	SVG   template.HTML
}

// Key is the meaning of a colour, and of a line's dashes.
type Key struct {
	Color  template.CSS
	Line   bool   // of a line, instead of an area
	Dashes string // lengths in pixels, for SVG; empty: a continuous line
	Text   string
}

// drawing is a figure under construction.
type drawing struct {
	*plot.Plot
	keys []Key
}

// means records the meaning of a colour. Keys are text of the page: a browser's fonts differ from the font
// that the drawing was measured with.
func (d *drawing) means(c color.Color, text string) {
	r, g, b, _ := c.RGBA()
	d.keys = append(d.keys, Key{Color: template.CSS(fmt.Sprintf("#%02x%02x%02x", r>>8, g>>8, b>>8)), Text: text})
}

// meansLine records the meaning of a line.
func (d *drawing) meansLine(s style, text string) {
	d.means(s.color, text)
	k := &d.keys[len(d.keys)-1]
	k.Line = true
	for _, l := range s.dashes {
		k.Dashes += fmt.Sprintf("%.0f ", l.Points())
	}
	k.Dashes = strings.TrimSpace(k.Dashes)
}

// Held returns the number of a scenario's rows that hold.
func (s Scenario) Held() (n int) {
	for _, v := range s.Result.Rows {
		if v.Verdict == sim.Holds {
			n++
		}
	}
	return n
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
	p := &drawing{Plot: plot.New()}
	sans(p.Plot)
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
	case "beside":
		err = beside(p, r, c)
	}
	if err != nil {
		return Figure{}, err
	}
	canvas := vgsvg.New(width, height)
	p.Draw(draw.Crop(draw.New(canvas), vg.Points(6), -vg.Points(14), vg.Points(4), -vg.Points(6)))
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return Figure{}, err
	}
	text := out.String()
	if i := strings.Index(text, "<svg"); i > 0 {
		text = text[i:]
	}
	text = strings.ReplaceAll(text, "font-family:Liberation Sans", "font-family:Liberation Sans,Arial,sans-serif")
	return Figure{c.Title, p.keys, template.HTML(text)}, nil
}

func face(size float64) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Points(size)}
}

// sans makes all text of a plot legible on a screen.
func sans(p *plot.Plot) {
	p.X.Label.TextStyle.Font, p.Y.Label.TextStyle.Font = face(12), face(12)
	p.X.Tick.Label.Font, p.Y.Tick.Label.Font = face(11), face(11)
	p.Y.Tick.Marker = plot.TickerFunc(ticks)
}

// secondTicks returns round numbers of seconds, with their unit.
func secondTicks(least, most float64) []plot.Tick {
	all := ticks(least, most)
	for i := range all {
		all[i].Label += " s"
	}
	return all
}

// ticks returns round numbers.
func ticks(least, most float64) (all []plot.Tick) {
	if most <= least {
		return nil
	}
	step := math.Pow(10, math.Floor(math.Log10((most-least)/3)))
	for _, times := range []float64{5, 2} {
		if (most-least)/(step*times) >= 3 {
			step *= times
			break
		}
	}
	for i := math.Ceil(least / step); i*step <= most; i++ {
		all = append(all, plot.Tick{Value: i * step, Label: fmt.Sprintf("%.4g", i*step)})
	}
	return all
}

// chosen returns the names that a chart shows: those it lists, or all.
func chosen(all, listed []string) []string {
	if len(listed) > 0 {
		return listed
	}
	return all
}

// domains returns the domains of a plan's runs.
func domains(r *sim.Result, plan string, c *sim.Chart) []string {
	var all []string
	for name := range r.Series[plan] {
		all = append(all, name)
	}
	slices.Sort(all)
	return chosen(all, c.Domains)
}

// boxes draws, by plan, a box for each domain: half of its runs, their median, and whiskers.
func boxes(p *drawing, r *sim.Result, c *sim.Chart) error {
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
			b.FillColor = styleOf(i).color
			p.Add(b)
			under := " "
			if i == len(all)/2 {
				under = plan
			}
			labels = append(labels, d+"\n"+under)
			if at == float64(i) {
				p.means(b.FillColor, d)
			}
			at++
		}
	}
	p.NominalX(labels...)
	p.X.Min, p.X.Max = -0.5, at-0.5
	p.Y.Min = 0
	p.Y.Max *= 1.05
	return nil
}

// lines draws the share of each domain over time, of one plan.
func lines(p *drawing, r *sim.Result, c *sim.Chart) error {
	p.X.Label.Text = "time (s)"
	p.X.Tick.Marker = plot.TickerFunc(secondTicks)
	if len(c.Band) == 2 {
		end := 0.0
		for _, series := range r.Series {
			for _, d := range series {
				end = max(end, float64(len(d.Share)))
			}
		}
		area, err := plotter.NewPolygon(plotter.XYs{{X: 0, Y: c.Band[0]}, {X: end, Y: c.Band[0]}, {X: end, Y: c.Band[1]}, {X: 0, Y: c.Band[1]}})
		if err != nil {
			return err
		}
		area.Color = color.Gray{222}
		area.LineStyle.Width = 0
		p.Add(area)
		p.means(area.Color, fmt.Sprintf("published: %.3g to %.3g %%", c.Band[0], c.Band[1]))
	}
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
			style := styleOf(n)
			l.Color, l.Dashes = style.color, style.dashes
			l.Width = vg.Points(1.8)
			p.Add(l)
			p.meansLine(style, plan+" "+d)
			n++
		}
	}
	p.Y.Min, p.Y.Max = 0, 115
	return nil
}

// bars draws a metric of each domain, by plan.
func bars(p *drawing, r *sim.Result, c *sim.Chart) error {
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
		b.Color = styleOf(i).color
		b.LineStyle.Width = 0
		b.Offset = w * vg.Length(float64(i)-float64(len(names)-1)/2)
		p.Add(b)
		if d != "" {
			p.means(b.Color, d)
		}
	}
	p.NominalX(plans...)
	p.X.Min, p.X.Max = -0.5, float64(len(plans))-0.5
	p.Y.Min = 0
	p.Y.Max *= 1.15
	return nil
}

// beside draws published values next to simulated ones, with their range over the seeds.
func beside(p *drawing, r *sim.Result, c *sim.Chart) error {
	w := vg.Points(min(44, 300/float64(len(c.Bars))))
	values := r.Bars[c.Title]
	simulated := ranges{XYs: make(plotter.XYs, len(values)), YErrors: make(plotter.YErrors, len(values))}
	bars := make(plotter.Values, len(values))
	low, high := make(plotter.Values, len(values)), make(plotter.Values, len(values))
	labels := plotter.XYLabels{XYs: make(plotter.XYs, 2*len(values)), Labels: make([]string, 2*len(values))}
	top := 0.0
	for i, v := range values {
		top = max(top, v.Most)
		if b := &c.Bars[i]; b.High != nil {
			top = max(top, *b.High)
		} else if b.Low != nil {
			top = max(top, *b.Low)
		}
	}
	names := make([]string, len(values))
	for i, v := range values {
		b := &c.Bars[i]
		names[i] = b.Name
		bars[i] = v.Mean
		simulated.XYs[i] = plotter.XY{X: float64(i), Y: v.Mean}
		simulated.YErrors[i].Low, simulated.YErrors[i].High = v.Mean-v.Least, v.Most-v.Mean
		text := ""
		switch {
		case b.Low != nil && b.High != nil && *b.Low != *b.High:
			low[i], high[i], text = *b.Low, *b.High, fmt.Sprintf("%.3g to %.3g", *b.Low, *b.High)
		case b.Low != nil && b.High != nil:
			low[i], high[i], text = *b.Low, *b.High, fmt.Sprintf("%.3g", *b.Low)
		case b.Low != nil:
			low[i], high[i], text = *b.Low, *b.Low, fmt.Sprintf("≥ %.3g", *b.Low)
		case b.High != nil:
			high[i], text = *b.High, fmt.Sprintf("≤ %.3g", *b.High)
		}
		labels.XYs[2*i], labels.Labels[2*i] = plotter.XY{X: float64(i), Y: high[i] + 0.01*top}, text
		v.Most += 0.01 * top // clear of the bar's end
		labels.XYs[2*i+1], labels.Labels[2*i+1] = plotter.XY{X: float64(i), Y: v.Most}, fmt.Sprintf("%.3g", v.Mean)
	}
	bar := func(v plotter.Values, side float64, fill color.Color) (*plotter.BarChart, error) {
		b, err := plotter.NewBarChart(v, w)
		if err != nil {
			return nil, err
		}
		b.Color, b.Offset = fill, w*vg.Length(side)
		b.LineStyle.Width = 0
		p.Add(b)
		return b, nil
	}
	if _, err := bar(high, -0.52, color.Gray{218}); err != nil {
		return err
	}
	published, err := bar(low, -0.52, color.Gray{165})
	if err != nil {
		return err
	}
	ours, err := bar(bars, 0.52, styleOf(0).color)
	if err != nil {
		return err
	}
	spread, err := plotter.NewYErrorBars(&simulated)
	if err != nil {
		return err
	}
	texts, err := plotter.NewLabels(labels)
	if err != nil {
		return err
	}
	for i := range texts.TextStyle {
		texts.TextStyle[i].Font = face(10)
		texts.TextStyle[i].XAlign = draw.XCenter
		texts.TextStyle[i].YAlign = draw.YBottom
	}
	p.Add(&shift{spread, w * 0.52}, &halves{texts, w * 0.52})
	p.means(published.Color, "published (lighter: up to)")
	p.means(ours.Color, "simulated: mean, least and most of the seeds")
	p.NominalX(names...)
	p.X.Min, p.X.Max = -0.5, float64(len(values))-0.5
	p.Y.Min, p.Y.Max = 0, 1.25*max(top, 1e-9)
	return nil
}

// ranges are values with their ranges below and above.
type ranges struct {
	plotter.XYs
	plotter.YErrors
}

// shift draws a plotter shifted to the right.
type shift struct {
	plot.Plotter
	by vg.Length
}

func (s *shift) Plot(c draw.Canvas, p *plot.Plot) {
	c.Min.X += s.by
	c.Max.X += s.by
	s.Plotter.Plot(c, p)
}

// halves draws labels alternately to the left and to the right of their positions.
type halves struct {
	*plotter.Labels
	by vg.Length
}

func (h *halves) Plot(c draw.Canvas, p *plot.Plot) {
	for i := range h.Labels.XYs {
		one := *h.Labels
		one.XYs, one.Labels, one.TextStyle = h.XYs[i:i+1], h.Labels.Labels[i:i+1], h.TextStyle[i:i+1]
		by := h.by
		if i%2 == 0 {
			by = -by
		}
		(&shift{&one, by}).Plot(c, p)
	}
}
