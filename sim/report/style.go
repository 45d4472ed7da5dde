package report

import (
	"image/color"

	"gonum.org/v1/plot/vg"
)

// style is the look of a line or an area: the colour, and for a line the lengths of dashes and gaps.
type style struct {
	color  color.Color
	dashes []vg.Length
}

// colors stay apart for readers with any common form of colour blindness, and from white. The operator's page has the
// same ones.
var colors = []color.RGBA{
	{0x00, 0x43, 0xb1, 0xff}, // blue
	{0xd3, 0x7a, 0x20, 0xff}, // orange
	{0x00, 0x9c, 0x78, 0xff}, // green
	{0xab, 0x4d, 0xab, 0xff}, // purple
	{0xab, 0x8d, 0x50, 0xff}, // sand
	{0x5f, 0x7a, 0xff, 0xff}, // light blue
	{0x67, 0x4c, 0x00, 0xff}, // brown
	{0x4d, 0x4d, 0x4d, 0xff}, // grey
}

var dashes = [][]vg.Length{nil, {8, 4}, {2, 3}, {10, 3, 2, 3}}

// styleOf returns the style of the line number n, from 0. The first 32 differ: dashes begin where the colours are used up.
func styleOf(n int) style {
	return style{colors[n%len(colors)], dashes[n/len(colors)%len(dashes)]}
}
