package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const repository = "../.."

func repositoryPages(t *testing.T) map[string]*Page {
	t.Helper()
	parts, err := Parts(repository)
	if err != nil {
		t.Fatal(err)
	}
	if len(parts) != 4 {
		t.Errorf("got %d parts, want 4", len(parts))
	}
	pages := map[string]*Page{}
	for _, part := range parts {
		for _, g := range part.Groups {
			for _, p := range g.Pages {
				if pages[p.File] != nil {
					t.Errorf("%s is in two places of docs/site/parts.toml", p.File)
				}
				pages[p.File] = p
			}
		}
	}
	return pages
}

// Every page of docs belongs to a part, and begins with its purpose.
func TestPages(t *testing.T) {
	pages := repositoryPages(t)
	err := filepath.WalkDir(filepath.Join(repository, "docs"), func(name string, e fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, ".md") {
			name, _ = filepath.Rel(repository, name)
			if pages[filepath.ToSlash(name)] == nil {
				t.Errorf("%s belongs to no part: list it in docs/site/parts.toml", name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Every relative link of the pages leads to a file of the repository, and its anchor to a heading.
func TestLinks(t *testing.T) {
	pages := repositoryPages(t)
	n := 0
	for _, p := range pages {
		for _, link := range p.Links {
			file, anchor, ok := p.resolve(link.Dest)
			if !ok {
				continue
			}
			n++
			line := 1 + strings.Count(p.Text[:link.At], "\n")
			if _, err := os.Stat(filepath.Join(repository, file)); err != nil || strings.HasPrefix(file, "..") {
				t.Errorf("%s:%d: link to %s: no such file", p.File, line, link.Dest)
			} else if target := pages[file]; anchor != "" && (target == nil || !target.Anchors(anchor)) {
				t.Errorf("%s:%d: link to %s: no such heading", p.File, line, link.Dest)
			}
		}
	}
	if n < 200 {
		t.Errorf("got %d links, want some hundreds: are they found?", n)
	}
}

func TestParse(t *testing.T) {
	p := &Page{File: "docs/x.md", Text: "<!-- c [no](a.md) -->\n# A `title`, **1**\n\nFor [all](b.md) readers.\nTwo lines.\n\n    [no](c.md)\n    # no\n\n" +
		"- item\n\n    [list](d.md)\n\n## Same\n\n`[no](e.md)` [over\nlines](../f.go#g)\n\n```\n[no](h.md)\n```\n\n## Same\n\n![image](i.svg)\n"}
	p.parse()
	var dests, anchors []string
	for _, l := range p.Links {
		dests = append(dests, l.Dest)
		if got := p.Text[l.At : l.At+len(l.Dest)]; got != l.Dest {
			t.Errorf("at %d: got %q, want %q", l.At, got, l.Dest)
		}
	}
	for _, s := range p.Sections {
		anchors = append(anchors, s.Anchor)
	}
	if want := []string{"b.md", "d.md", "../f.go#g", "i.svg"}; !slices.Equal(dests, want) {
		t.Errorf("links: got %q, want %q", dests, want)
	}
	if want := []string{"a-title-1", "same", "same-1"}; !slices.Equal(anchors, want) {
		t.Errorf("anchors: got %q, want %q", anchors, want)
	}
	if p.Title != "A title, 1" || p.About != "For all readers. Two lines." {
		t.Errorf("got title %q and purpose %q", p.Title, p.About)
	}
	if file, anchor, ok := p.resolve("../f.go#g"); file != "f.go" || anchor != "g" || !ok {
		t.Errorf("got %q, %q, %v", file, anchor, ok)
	}
}

// The check of the built site finds each kind of mistake.
func TestCheckSite(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("a.html", `<h1 id="top">x</h1><a href="b.html#part">b</a><a href="https://example.org/">e</a>`)
	write("b.html", `<h2 id=part>x</h2><a href='a.html#top'>a</a>`)
	if n, err := checkSite(dir); n != 3 || err != nil {
		t.Errorf("got %d links and %v, want 3 and no error", n, err)
	}
	for _, c := range []struct{ text, want string }{
		{`<a href="c.html">`, "no such file"},
		{`<a href="a.html#none">`, "no such anchor"},
		{`<a href="/a.html">`, "not relative"},
		{`<script src="https://example.org/x.js"></script>`, "loaded from another site"},
	} {
		write("b.html", `<h2 id="part"></h2>`+c.text)
		if _, err := checkSite(dir); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.text, err, c.want)
		}
	}
}
