//go:build browser

package report

import (
	"bytes"
	"fmt"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"pegasus/sim"
)

// A script's view of the page in a window of 1280 pixels, written into its body: the page itself has no
// script.
const probe = `<script>
const rest = [...document.querySelectorAll("figure > svg")].map(s => s.getBoundingClientRect());
const outside = [...document.querySelectorAll("svg text")].filter(t => {
	const a = t.getBoundingClientRect(), b = t.closest("svg").getBoundingClientRect();
	return a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 || a.bottom > b.bottom + 1;
}).map(t => t.textContent);
const small = [...document.querySelectorAll("svg text")].filter(t => {
	const m = t.getScreenCTM();
	return parseFloat(getComputedStyle(t).fontSize) * Math.hypot(m.a, m.b) < 12;
}).map(t => t.textContent);
document.body.innerHTML = "<pre>PROBE figures=" + rest.length + " narrow=" + rest.filter(r => r.width < 700 || r.height < 200).length +
	" wide=" + document.documentElement.scrollWidth + " outside=[" + outside + "] small=[" + small + "] END</pre>";
</script>`

// The page of all scenarios opens without a server and without an error; it is no wider than the window, and
// all text of its figures is in them and large enough to read.
func TestPageInBrowser(t *testing.T) {
	all, err := sim.Scenarios()
	if err != nil {
		t.Fatal(err)
	}
	var sections []Scenario
	charts := 0
	for _, sc := range all {
		if sc.ID == "S1" || sc.Bench != "" {
			continue
		}
		r, err := sim.Judge(sc, 1, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		charts += len(sc.Charts)
		sections = append(sections, Scenario{Scenario: sc, Result: r})
	}
	var page bytes.Buffer
	if err := Write(&page, sections); err != nil {
		t.Fatal(err)
	}
	dir := os.Getenv("OUT")
	if dir == "" {
		dir = t.TempDir()
	}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	index := write("index.html", page.String())
	probed := write("probed.html", strings.Replace(page.String(), "</body>", probe+"</body>", 1))
	browse := func(args ...string) string {
		c := exec.Command("chromium", append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
			"--user-data-dir=" + t.TempDir(), "--enable-logging=stderr", "--window-size=1280,1000"}, args...)...)
		var out, log bytes.Buffer
		c.Stdout, c.Stderr = &out, &log
		if err := c.Run(); err != nil {
			t.Fatalf("chromium: %v\n%s", err, log.String())
		}
		for line := range strings.SplitSeq(log.String(), "\n") {
			if strings.Contains(line, "CONSOLE") {
				t.Errorf("the page's console: %s", line)
			}
		}
		return out.String()
	}
	found := regexp.MustCompile(`PROBE (.*) END`).FindStringSubmatch(browse("--dump-dom", "file://"+probed))
	want := fmt.Sprintf("figures=%d narrow=0 wide=1280 outside=[] small=[]", charts)
	if found == nil || found[1] != want {
		t.Errorf("the browser finds %v, not %s", found, want)
	}
	shot := filepath.Join(dir, "page.png")
	browse("--screenshot="+shot, "file://"+index)
	f, err := os.Open(shot)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	picture, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	if w := picture.Bounds().Dx(); w != 1280 {
		t.Errorf("the picture is %d pixels wide", w)
	}
}
