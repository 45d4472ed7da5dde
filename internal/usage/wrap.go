package usage

import (
	"strings"
	"unicode/utf8"
)

// Wrap returns a text in lines of at most width columns. Lines without indentation are paragraphs, which are filled.
// Of an indented line that is too long, what follows after several spaces goes on below.
func Wrap(text string, width int) string {
	var b strings.Builder
	var paragraph []string
	flush := func() {
		if len(paragraph) > 0 {
			b.WriteString(Hang(strings.Join(paragraph, " "), 0, width))
			paragraph = nil
		}
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, " "):
			flush()
			b.WriteString(example(line, width))
		case line == "":
			flush()
			b.WriteString("\n")
		default:
			paragraph = append(paragraph, line)
		}
	}
	flush()
	return b.String()
}

// example returns an indented line, with its remark below if it is too long for both.
func example(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line + "\n"
	}
	const far = 20 // a remark that begins here or before stays in its column
	begin := len(line) - len(strings.TrimLeft(line, " "))
	gap := strings.Index(line[begin:], "  ")
	if gap < 0 {
		return Hang(line, begin+4, width)
	}
	command, remark := line[:begin+gap], strings.TrimLeft(line[begin+gap:], " ")
	if column := len(line) - len(remark); column <= far {
		return Hang(line, column, width)
	}
	return command + "\n" + Hang(strings.Repeat(" ", begin+4)+remark, begin+4, width)
}

// Hang returns a line in lines of at most width columns, those after the first indented. It keeps the spaces within
// the line.
func Hang(line string, indent, width int) string {
	var b strings.Builder
	for utf8.RuneCountInString(line) > width {
		begin := len(line) - len(strings.TrimLeft(line, " "))
		at, column := -1, 0
		for i, r := range line {
			if r == ' ' && i > begin && column <= width {
				at = i
			}
			column++
		}
		if first := strings.IndexByte(line[begin:], ' '); at < 0 && first >= 0 {
			at = begin + first // a word that is too long stays whole
		}
		if at < 0 {
			break
		}
		b.WriteString(strings.TrimRight(line[:at], " ") + "\n")
		line = strings.Repeat(" ", indent) + strings.TrimLeft(line[at:], " ")
	}
	return b.String() + line + "\n"
}
