package events

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A Report is what the witnesses of a machine have said in a part of its output. A witness's name begins with
// the name of the boot that it is of.
type Report struct {
	Text    string
	Boot    string   // the last one that began
	Program string   // the last one that computed
	Right   int      // how many of its rounds were
	Ended   []string // statuses of programs, of the last boot
	Wrong   string   // what one of them saw that isn't right
}

var testimony = regexp.MustCompile(`(?m)^(?:boot (\w{8})|(\w{8}-\d+) right (\d+)|ended (\d+)|(.* wrong: .*))$`)

// ParseReport reads one, without the last line if that isn't whole.
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

// Taken says whether a machine's program has taken an event as it should. Before it was said what before has, since
// the event began what r has, and of that atFirst when the event was over. An error says that it never will.
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
