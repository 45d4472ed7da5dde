package events

import "testing"

func TestTaken(t *testing.T) {
	before := ParseReport("boot 12345678\n12345678-1 right 5\n")
	for _, c := range []struct {
		then, text string
		ok, never  bool
	}{
		{GoesOn, "12345678-1 right 6\n", true, false},
		{GoesOn, "12345678-1 right 5\n", false, false},
		{GoesOn, "ended 1\n", false, true},
		{GoesOn, "12345678-1 wrong: 3 is 4\n", false, true},
		{IsFollowed, "ended 137\n12345678-2 right 1\n", true, false},
		{IsFollowed, "ended 1\n12345678-2 right 1\n", false, true},
		{Boots, "boot 87654321\n87654321-1 right 1\n", true, false},
		{Boots, "boot 87654321\n12345678-1 right 9\n", false, false},
		{"fails ONE", "f(x): ONE\nended 1\n12345678-2 right 1\n", true, false},
		{"fails ONE", "f(x): ONE\nended 1\n", false, false}, // the next one doesn't compute yet
		{"fails ONE", "f(x): ONES\nended 1\n12345678-2 right 1\n", false, true},
		{"fails ONE or OTHER", "f(x): OTHER\nended 1\n12345678-2 right 1\n", true, false},
		{"fails ONE or OTHER", "f(x): ANOTHER ONE!\nended 1\n12345678-2 right 1\n", false, true},
	} {
		ok, err := Taken(c.then, before, Report{}, ParseReport(c.text))
		if ok != c.ok || (err != nil) != c.never {
			t.Errorf("%s: %q: taken %v, %v", c.then, c.text, ok, err)
		}
	}
}
