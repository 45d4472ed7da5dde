package top

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/charmbracelet/x/ansi"
)

// clean replaces the characters of a text that would move the cursor or change the terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '·'
		}
		return r
	}, s)
}

// fit returns a text with exactly so many cells: truncated with an ellipsis, or padded.
func fit(s string, width int, left bool) string {
	if width <= 0 {
		return ""
	}
	s = ansi.Truncate(clean(s), width, "…")
	pad := strings.Repeat(" ", width-ansi.StringWidth(s))
	if left {
		return s + pad
	}
	return pad + s
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func percent(f float64) string { return fmt.Sprintf("%.1f %%", 100*f) }

func signed(f float64) string {
	if text := percent(f); text != "-0.0 %" && text != "0.0 %" {
		return fmt.Sprintf("%+.1f %%", 100*f)
	}
	return "0.0 %"
}

// count returns a rate with about three digits.
func count(f float64) string {
	if f == 0 {
		return "0"
	}
	for _, unit := range []string{"", "k", "M"} {
		if f < 9.995 {
			return fmt.Sprintf("%.2f%s", f, unit)
		} else if f < 99.95 {
			return fmt.Sprintf("%.1f%s", f, unit)
		} else if f < 999.5 {
			return fmt.Sprintf("%.0f%s", f, unit)
		}
		f /= 1000
	}
	return fmt.Sprintf("%.0fG", f)
}

// duration returns a time of ns with about three digits.
func duration(ns float64) string {
	switch d := time.Duration(ns); {
	case d <= 0:
		return "0"
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d.Nanoseconds())
	case d < 999500*time.Nanosecond:
		return fmt.Sprintf("%.3g µs", ns/1e3)
	case d < 999500*time.Microsecond:
		return fmt.Sprintf("%.3g ms", ns/1e6)
	case d < 1000*time.Second:
		return fmt.Sprintf("%.3g s", ns/1e9)
	default:
		return fmt.Sprintf("%.1f h", d.Hours())
	}
}

// size returns a number of bytes with about three digits.
func size(n float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for n >= 999.5 && i < len(units)-1 {
		n /= 1024
		i++
	}
	if i == 0 || n >= 99.95 {
		return fmt.Sprintf("%.0f %s", n, units[i])
	}
	return fmt.Sprintf("%.3g %s", n, units[i])
}

func memory(used, of uint64) string {
	if of == 0 {
		return size(float64(used))
	}
	return size(float64(used)) + " / " + size(float64(of))
}
