package events

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A Report is the content of the witnesses' lines in a part of a machine's output. A witness's name begins with
// the name of its boot.
type Report struct {
	Text    string
	Boot    string   // the last boot that began
	Program string   // the last witness that computed
	Right   int      // the number of its correct rounds
	Ended   []string // the exit statuses of programs of the last boot
	Wrong   string   // a witness's line about a wrong result
}

var testimony = regexp.MustCompile(`(?m)^(?:boot (\w{8})|(\w{8}-\d+) right (\d+)|ended (\d+)|(.* wrong: .*))$`)

// ParseReport parses a machine's output, without the last line if that is incomplete.
func ParseReport(text string) (r Report) {
	r.Text = text
	for _, m := range testimony.FindAllStringSubmatch(text[:strings.LastIndexByte(text, '\n')+1], -1) {
		switch {
		case m[1] != "":
			r.Boot, r.Ended = m[1], nil
		case m[2] != "":
			r.Program = m[2]
			r.Right, _ = strconv.Atoi(m[3])
		case m[4] != "":
			r.Ended = append(r.Ended, m[4])
		default:
			r.Wrong = m[5]
		}
	}
	return r
}

// Taken reports whether a machine's program has reacted to an event as the script requires. before is the report up to
// the event, r the report since the event's beginning, and atFirst the part of r up to the event's end. Taken returns
// an error once the required reaction has become impossible.
func Taken(then string, before, atFirst, r Report) (bool, error) {
	boot, _, _ := strings.Cut(before.Program, "-")
	switch failed, fails := strings.CutPrefix(then, FailsWith); {
	case r.Wrong != "":
		return false, fmt.Errorf("%s", r.Wrong)
	case then == GoesOn && (len(r.Ended) > 0 || r.Boot != "" || r.Program != "" && r.Program != before.Program):
		return false, fmt.Errorf("its program didn't go on:\n%s", r.Text)
	case then == GoesOn:
		return r.Right > max(atFirst.Right, before.Right), nil
	case r.Program == "" || r.Program == before.Program:
	case then == Boots && len(r.Ended) > 0:
		return false, fmt.Errorf("a program failed after the boot:\n%s", r.Text)
	case then == Boots:
		return r.Boot != "" && strings.HasPrefix(r.Program, r.Boot), nil
	case r.Boot != "" || !strings.HasPrefix(r.Program, boot) || len(r.Ended) != 1:
		return false, fmt.Errorf("not one of its programs ended, but %d:\n%s", len(r.Ended), r.Text)
	case then == IsFollowed && r.Ended[0] != "137", fails && (r.Ended[0] != "1" || !slices.ContainsFunc(strings.Split(failed, " or "), func(e string) bool { return strings.Contains(r.Text, e+"\n") })):
		return false, fmt.Errorf("its program ended with %s:\n%s", r.Ended[0], r.Text)
	default:
		return true, nil
	}
	return false, nil
}
