// Site builds the documentation as a static site in build/site with Hugo, from the pages as they are read in the
// repository and from docs/site, and checks every link of the result.
//
// Callers: make docs. Trust boundary: none; its input is the repository.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	log.SetFlags(0)
	out := flag.String("o", "build/site", "the `directory` of the site, which is written anew")
	flag.Parse()
	work, err := os.MkdirTemp("", "pegasus-site")
	if err != nil {
		log.Fatal(err)
	}
	err = build(".", work, *out)
	os.RemoveAll(work)
	if err != nil {
		log.Fatal(err)
	}
}

func build(root, work, out string) error {
	parts, err := Parts(root)
	if err != nil {
		return err
	}
	if err := stage(root, work, parts); err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	out, err = filepath.Abs(out)
	if err != nil {
		return err
	}
	hugo := exec.Command("hugo", "--quiet", "--source", work, "--destination", out)
	hugo.Stdout, hugo.Stderr = os.Stdout, os.Stderr
	if err := hugo.Run(); err != nil {
		return fmt.Errorf("hugo: %w", err)
	}
	n, err := checkSite(out)
	if err == nil {
		fmt.Printf("%s: %d links lead to a place\n", filepath.Join(out, "index.html"), n)
	}
	return err
}

// stage writes the input of Hugo: docs/site, the pages with their front matter, the files to which they link, and the
// index for searching.
func stage(root, work string, parts []Part) error {
	if err := os.CopyFS(work, os.DirFS(filepath.Join(root, "docs/site"))); err != nil {
		return err
	}
	s := &stager{root: root, work: work, pages: map[string]*Page{}, copied: map[string]string{}}
	for _, part := range parts {
		for _, g := range part.Groups {
			for _, p := range g.Pages {
				s.pages[p.File] = p
			}
		}
	}
	type section struct {
		Page    string `json:"page"`
		Section string `json:"section"`
		URL     string `json:"url"`
		Text    string `json:"text"`
	}
	var index []section
	for _, part := range parts {
		err := s.content("part/"+slug(part.Name)+".md", map[string]string{"title": part.Name, "part": part.Name, "about": part.About, "url": part.URL, "layout": "part"}, "")
		for _, g := range part.Groups {
			for _, p := range g.Pages {
				text, err2 := s.rewrite(p)
				err = errors.Join(err, err2, s.content(strings.TrimPrefix(p.File, "docs/"), map[string]string{"title": p.Title, "part": part.Name, "about": p.About, "url": p.URL}, text))
				for _, sec := range p.Sections {
					index = append(index, section{p.Title, sec.Title, strings.TrimPrefix(p.URL, "/") + "#" + sec.Anchor, sec.Text})
				}
			}
		}
		if err != nil {
			return err
		}
	}
	data, err := json.Marshal(index)
	nav, err2 := json.Marshal(parts)
	return errors.Join(err, err2,
		s.write("static/index.js", append(append([]byte("window.pegasusIndex = "), data...), ";\n"...)),
		s.write("data/parts.json", nav))
}

type stager struct {
	root, work string
	pages      map[string]*Page
	copied     map[string]string // URLs of other files and directories, by their paths
}

func (s *stager) write(name string, data []byte) error {
	name = filepath.Join(s.work, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o644)
}

func (s *stager) content(name string, front map[string]string, text string) error {
	head, err := json.Marshal(front)
	if err != nil {
		return err
	}
	return s.write("content/"+name, append(append(head, "\n\n"...), text...))
}

// rewrite returns a page's text with links to places in the site.
func (s *stager) rewrite(p *Page) (string, error) {
	text, after := "", 0
	for _, link := range p.Links {
		file, anchor, ok := p.resolve(link.Dest)
		if !ok {
			continue
		}
		url, err := s.url(file)
		if err != nil {
			return "", fmt.Errorf("%s: link to %s: %w", p.File, link.Dest, err)
		}
		if anchor != "" {
			url += "#" + anchor
		}
		text += p.Text[after:link.At] + url
		after = link.At + len(link.Dest)
	}
	return comment.ReplaceAllString(text+p.Text[after:], ""), nil
}

// url returns the place in the site of a file in the repository. Files that are no pages are copied, and of directories
// the names of their files.
func (s *stager) url(file string) (string, error) {
	if p := s.pages[file]; p != nil {
		return p.URL, nil
	}
	if url := s.copied[file]; url != "" {
		return url, nil
	}
	info, err := os.Stat(filepath.Join(s.root, file))
	if err != nil {
		return "", err
	}
	url := "/source/" + file + ".txt" // a browser shows it, and Go finds no package in it
	if inDocs, ok := strings.CutPrefix(file, "docs/"); ok {
		url = "/" + inDocs
	}
	if info.IsDir() {
		url = strings.TrimSuffix(url, ".txt") + "/index.html"
		s.copied[file] = url
		return url, s.listing(file, url)
	}
	s.copied[file] = url
	data, err := os.ReadFile(filepath.Join(s.root, file))
	if err != nil {
		return "", err
	}
	return url, s.write("static"+url, data)
}

// listing writes a page with the names of a directory's files.
func (s *stager) listing(dir, url string) error {
	entries, err := os.ReadDir(filepath.Join(s.root, dir))
	if err != nil {
		return err
	}
	text := "# " + dir + "\n\nThe files of this directory of the repository:\n\n"
	for _, e := range entries {
		if p := s.pages[path.Join(dir, e.Name())]; p != nil {
			text += fmt.Sprintf("- [%s](%s): %s\n", e.Name(), p.URL, p.Title)
		} else {
			text += fmt.Sprintf("- `%s`\n", e.Name())
		}
	}
	return s.content("listing/"+slug(strings.ReplaceAll(dir, "/", "-"))+".md", map[string]string{"title": dir, "url": url}, text)
}

// checkSite returns the number of links in the site's pages, and an error that lists those that lead nowhere. Nothing may
// be loaded from another site.
func checkSite(dir string) (links int, err error) {
	pages := map[string]*html{}
	err = filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && strings.HasSuffix(name, ".html") {
			var data []byte
			data, err = os.ReadFile(name)
			pages[name] = readHTML(string(data))
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	var wrong []string
	for name, page := range pages {
		for _, ref := range page.refs {
			links++
			if cause := page.check(name, ref, pages); cause != "" {
				at, _ := filepath.Rel(dir, name)
				wrong = append(wrong, fmt.Sprintf("%s: %s: %s", at, ref.dest, cause))
			}
		}
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		return links, fmt.Errorf("%d links of the site lead nowhere:\n%s", len(wrong), strings.Join(wrong, "\n"))
	}
	return links, nil
}
