package report

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pegasus/sim"
)

// Machado, Oliveira and Fernandes (2009): the colours that readers without one kind of cones see, in linear RGB.
var blindness = map[string][3][3]float64{
	"none":         {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
	"protanopia":   {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}},
	"deuteranopia": {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}},
	"tritanopia":   {{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}},
}

// seen returns a colour's place in CIELAB for a reader.
func seen(c color.RGBA, by [3][3]float64) (lab [3]float64) {
	var rgb, xyz [3]float64
	for i, v := range []uint8{c.R, c.G, c.B} {
		f := float64(v) / 255
		if rgb[i] = f / 12.92; f > 0.04045 {
			rgb[i] = math.Pow((f+0.055)/1.055, 2.4)
		}
	}
	var out [3]float64
	for i := range out {
		for j := range rgb {
			out[i] += by[i][j] * rgb[j]
		}
		out[i] = min(max(out[i], 0), 1)
	}
	for i, row := range [3][3]float64{{0.4124, 0.3576, 0.1805}, {0.2126, 0.7152, 0.0722}, {0.0193, 0.1192, 0.9505}} {
		for j := range out {
			xyz[i] += row[j] * out[j]
		}
		if xyz[i] /= []float64{0.9505, 1, 1.089}[i]; xyz[i] > 0.008856 {
			xyz[i] = math.Cbrt(xyz[i])
		} else {
			xyz[i] = 7.787*xyz[i] + 16.0/116
		}
	}
	return [3]float64{116*xyz[1] - 16, 500 * (xyz[0] - xyz[1]), 200 * (xyz[1] - xyz[2])}
}

// Lines of the same dashes have colours that stay apart for readers with any kind of colour blindness.
func TestStylesDiffer(t *testing.T) {
	const least = 20 // of the distance in CIELAB; 2.3 is just noticeable
	used := map[string]int{}
	for n := range 32 {
		s := styleOf(n)
		look := fmt.Sprint(s)
		if other, ok := used[look]; ok {
			t.Errorf("lines %d and %d look alike: %s", other, n, look)
		}
		used[look] = n
	}
	palettes := [][]color.RGBA{colors}
	page, err := os.ReadFile("../../backend/web/page/style.css")
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range regexp.MustCompile(`--s([1-8]): #([0-9a-f]{6})`).FindAllStringSubmatch(string(page), -1) {
		if i%len(colors) == 0 { // the light palette, then the dark one
			palettes = append(palettes, nil)
		}
		v, _ := strconv.ParseUint(m[2], 16, 24)
		palettes[len(palettes)-1] = append(palettes[len(palettes)-1], color.RGBA{uint8(v >> 16), uint8(v >> 8), uint8(v), 255})
	}
	if len(palettes) != 3 || len(palettes[2]) != len(colors) {
		t.Fatalf("the operator's page has the palettes %v, want two of %d colours", palettes[1:], len(colors))
	}
	for n, palette := range palettes {
		for kind, by := range blindness {
			for i, a := range palette {
				for _, b := range palette[:i] {
					p, q := seen(a, by), seen(b, by)
					if d := math.Hypot(math.Hypot(p[0]-q[0], p[1]-q[1]), p[2]-q[2]); d < least {
						t.Errorf("palette %d, %s: %v and %v are %.1f apart, want %d", n, kind, a, b, d, least)
					}
				}
			}
		}
	}
}

// A figure with twelve lines shows them with twelve styles, and its axis of time has a unit.
func TestLinesOfManyDomains(t *testing.T) {
	r := &sim.Result{Series: map[string]sim.Series{"RR": {}}}
	for n := range 12 {
		r.Series["RR"][fmt.Sprintf("d%02d", n)] = struct{ Work, Share []float64 }{Share: []float64{1, 2, 3, 4, 5}}
	}
	f, err := figure(r, &sim.Chart{Kind: "time", Title: "many", Unit: "%", Plans: []string{"RR"}})
	if err != nil {
		t.Fatal(err)
	}
	looks := map[string]bool{}
	for _, k := range f.Keys {
		if !k.Line {
			t.Errorf("%+v: the key of a line shows none", k)
		}
		looks[string(k.Color)+k.Dashes] = true
	}
	if len(looks) != 12 {
		t.Errorf("%d keys look different, want 12: %+v", len(looks), f.Keys)
	}
	for _, text := range []string{"time (s)", ">2 s<"} {
		if !strings.Contains(string(f.SVG), text) {
			t.Errorf("the figure lacks %q", text)
		}
	}
	if n := strings.Count(string(f.SVG), "stroke-dasharray"); n < 4 {
		t.Errorf("%d dashed lines, want 4", n)
	}
}
