//go:build browser

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// probe searches with the keyboard, as a person would, and writes what the page shows into its body.
const probe = `<script>
window.onload = async () => {
	const input = document.querySelector("#search input"), list = document.getElementById("found");
	const key = (at, key) => at.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
	const shown = async () => { for (let i = 0; i < 100 && list.hidden; i++) await new Promise(done => setTimeout(done, 50)); };
	const result = {errors, wide: document.documentElement.scrollWidth <= innerWidth, hidden: document.getElementById("search").hidden};
	key(document.body, "/");
	result.focused = document.activeElement === input;
	input.value = "exit STATUS";
	input.dispatchEvent(new Event("input", {bubbles: true}));
	await shown();
	result.found = list.children.length;
	result.first = list.querySelector("a")?.getAttribute("href") ?? "";
	key(input, "ArrowDown");
	result.chosen = [...list.children].findIndex(i => i.getAttribute("aria-selected") === "true");
	result.active = document.getElementById(input.getAttribute("aria-activedescendant"))?.getAttribute("aria-selected") ?? "";
	key(input, "Escape");
	result.closed = list.hidden && document.activeElement !== input;
	input.focus();
	input.value = "nosuchwordanywhere";
	input.dispatchEvent(new Event("input", {bubbles: true}));
	await new Promise(done => setTimeout(done, 300));
	result.none = list.hidden && document.getElementById("count").textContent;
	const pre = document.createElement("pre");
	pre.textContent = "PROBE " + Object.entries(result).map(e => e.join("=")).join(" ") + " END";
	document.body.replaceChildren(pre);
};
</script>`

// The site opens from files, at the widths of a telephone and a screen, and its search works with the keyboard. The pages lie
// below a directory, as they would below a prefix of a server.
func TestSearchInBrowser(t *testing.T) {
	out := filepath.Join(t.TempDir(), "a prefix", "site")
	if err := build(repository, t.TempDir(), out); err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"index.html", "decisions/README.html"} {
		text, err := os.ReadFile(filepath.Join(out, page))
		if err != nil {
			t.Fatal(err)
		}
		tried := strings.Replace(string(text), "<head>", "<head><script>const errors = []; onerror = m => errors.push(m);</script>", 1)
		tried = strings.Replace(tried, "</body>", probe+"</body>", 1)
		file := filepath.Join(out, filepath.Dir(page), "probe.html")
		if err := os.WriteFile(file, []byte(tried), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, width := range []int{500, 1280} {
			t.Run(fmt.Sprintf("%s at %d", page, width), func(t *testing.T) {
				got := inBrowser(t, file, width)
				for _, want := range []string{"errors= ", "wide=true", "hidden=false", "focused=true", "chosen=1", "active=true", "closed=true", "none=No results"} {
					if !strings.Contains(got, want) {
						t.Errorf("got %s, want %s", got, want)
					}
				}
				if !regexp.MustCompile(`found=[1-9]\d* first=\S*/zz_commands\.html#exit-status`).MatchString(got) {
					t.Errorf("got %s, want the section about the exit status first", got)
				}
			})
		}
	}
}

// No page is wider than a telephone.
func TestWidthInBrowser(t *testing.T) {
	out := filepath.Join(t.TempDir(), "site")
	if err := build(repository, t.TempDir(), out); err != nil {
		t.Fatal(err)
	}
	parts, err := Parts(repository)
	if err != nil {
		t.Fatal(err)
	}
	frames, n := "", 0
	for _, part := range parts {
		for _, g := range part.Groups {
			for _, p := range g.Pages {
				frames += fmt.Sprintf(`<iframe width="390" height="800" src=".%s"></iframe>`, p.URL)
				n++
			}
		}
	}
	file := filepath.Join(out, "probe.html")
	page := `<!DOCTYPE html><body>` + frames + `<script>
window.onload = () => {
	const all = [...document.querySelectorAll("iframe")];
	const wide = all.filter(f => f.contentDocument.documentElement.scrollWidth > 390).map(f => f.getAttribute("src"));
	document.body.innerHTML = "<pre>PROBE frames=" + all.length + " wide=[" + wide + "] END</pre>";
};
</script></body>`
	if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, want := inBrowser(t, file, 1280, "--allow-file-access-from-files"), fmt.Sprintf("frames=%d wide=[]", n); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// inBrowser returns what the page's probe writes.
func inBrowser(t *testing.T, file string, width int, flags ...string) string {
	t.Helper()
	cmd := exec.Command("chromium", append(flags, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+t.TempDir(),
		fmt.Sprintf("--window-size=%d,900", width), "--virtual-time-budget=20000", "--dump-dom", "file://"+strings.ReplaceAll(file, " ", "%20"))...)
	dom, err := cmd.Output()
	if err != nil {
		t.Fatalf("chromium: %v (make report-test installs it)", err)
	}
	m := regexp.MustCompile(`(?s)<pre>PROBE (.*) END</pre>`).FindSubmatch(dom)
	if m == nil {
		t.Fatalf("the page's probe did not run: %.2000s", dom)
	}
	return string(m[1])
}
