package main

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"

	"github.com/BurntSushi/toml"
)

// Part is one of the site's parts.
type Part struct {
	Name   string  `toml:"name" json:"name"`
	About  string  `toml:"about" json:"about"`
	URL    string  `toml:"-" json:"url"`
	Groups []Group `toml:"group" json:"groups"`
}

// Group is a part's pages under a heading, which may be empty.
type Group struct {
	Name     string   `toml:"name" json:"name"`
	Patterns []string `toml:"pages" json:"-"`
	Pages    []*Page  `toml:"-" json:"pages"`
}

// Page is one Markdown file of the repository.
type Page struct {
	File     string    `json:"-"` // its path in the repository, with slashes
	Part     string    `json:"-"`
	URL      string    `json:"url"` // in the site, with a slash before it
	Title    string    `json:"title"`
	About    string    `json:"about"` // the first sentences
	Text     string    `json:"-"`
	Links    []Link    `json:"-"`
	Sections []Section `json:"-"`
}

// Link is the destination of a link or an image, at an offset in bytes of the page's text.
type Link struct {
	At   int
	Dest string
}

// Section is a heading with the text below it.
type Section struct {
	Title, Anchor, Text string
}

// Anchors reports whether the page has a heading with this anchor.
func (p *Page) Anchors(anchor string) bool {
	for _, s := range p.Sections {
		if s.Anchor == anchor {
			return true
		}
	}
	return false
}

// Parts reads the parts of docs/site/parts.toml in a repository, with their pages.
func Parts(root string) ([]Part, error) {
	var file struct {
		Parts []Part `toml:"part"`
	}
	if _, err := toml.DecodeFile(filepath.Join(root, "docs/site/parts.toml"), &file); err != nil {
		return nil, err
	}
	for i := range file.Parts {
		part := &file.Parts[i]
		part.URL = "/part/" + slug(part.Name) + ".html"
		for j := range part.Groups {
			g := &part.Groups[j]
			for _, pattern := range g.Patterns {
				found, err := filepath.Glob(filepath.Join(root, pattern))
				if err != nil || len(found) == 0 {
					return nil, fmt.Errorf("part %s: %s: no such page", part.Name, pattern)
				}
				for _, name := range found {
					name, _ := filepath.Rel(root, name)
					page, err := readPage(root, filepath.ToSlash(name))
					if err != nil {
						return nil, err
					}
					page.Part = part.Name
					g.Pages = append(g.Pages, page)
				}
			}
		}
	}
	return file.Parts, nil
}

func readPage(root, name string) (*Page, error) {
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return nil, err
	}
	p := &Page{File: name, Text: string(data), URL: "/" + strings.TrimSuffix(strings.TrimPrefix(name, "docs/"), ".md") + ".html"}
	p.parse()
	if name == "README.md" {
		p.Title = "Overview" // the site itself is Pegasus
	}
	if p.Title == "" {
		return nil, fmt.Errorf("%s: no title: it must begin with a line \"# …\"", name)
	}
	return p, nil
}

var (
	destination = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading     = regexp.MustCompile(`(?m)^#{1,6} +(.*)$`)
	linkText    = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	comment     = regexp.MustCompile(`(?s)<!--.*?-->`)
	marks       = regexp.MustCompile(`\||(?m)^[ #>-]+|-{3,}`)
	spaces      = regexp.MustCompile(`\s+`)
)

// parse finds the page's links and headings, which code has none of.
func (p *Page) parse() {
	masked := maskCode(p.Text)
	for _, m := range destination.FindAllStringSubmatchIndex(masked, -1) {
		p.Links = append(p.Links, Link{m[2], masked[m[2]:m[3]]})
	}
	all := heading.FindAllStringSubmatchIndex(masked, -1)
	seen := map[string]int{}
	for i, m := range all {
		title := linkText.ReplaceAllString(p.Text[m[2]:m[3]], "$1")
		end := len(p.Text)
		if i+1 < len(all) {
			end = all[i+1][0]
		}
		anchor := slug(title)
		if n := seen[anchor]; n > 0 {
			anchor = fmt.Sprintf("%s-%d", anchor, n)
		}
		seen[slug(title)]++
		p.Sections = append(p.Sections, Section{plain(title), anchor, plain(p.Text[m[1]:end])})
		if i == 0 {
			p.Title = plain(title)
			first, _, _ := strings.Cut(strings.TrimSpace(p.Text[m[1]:]), "\n\n")
			if !strings.HasPrefix(first, "#") {
				p.About = plain(first)
			}
		}
	}
}

// maskCode returns the text with spaces in place of fenced blocks, indented blocks, code within lines and comments.
func maskCode(text string) string {
	b := []byte(comment.ReplaceAllStringFunc(text, blank))
	fence, code, was := "", false, true // was: the line before is blank
	inList := false
	for at := 0; at < len(b); {
		end := at + bytes.IndexByte(b[at:], '\n') + 1
		if end == at {
			end = len(b)
		}
		line := string(b[at:end])
		trimmed := strings.TrimSpace(line)
		switch {
		case fence != "":
			if strings.HasPrefix(trimmed, fence) {
				fence = ""
			}
			copy(b[at:end], blank(line))
		case strings.HasPrefix(trimmed, "```"), strings.HasPrefix(trimmed, "~~~"):
			fence = trimmed[:3]
			copy(b[at:end], blank(line))
		case trimmed != "" && strings.HasPrefix(line, "    ") && (was || code) && !inList:
			code = true
			copy(b[at:end], blank(line))
		case trimmed != "":
			code = false
			if !strings.HasPrefix(line, " ") {
				inList = listItem.MatchString(line)
			}
		}
		was = trimmed == ""
		at = end
	}
	return inlineCode.ReplaceAllStringFunc(string(b), blank)
}

var (
	listItem   = regexp.MustCompile(`^([-*+]|\d+[.)]) `)
	inlineCode = regexp.MustCompile("``[^`].*?``|`[^`\n]*(\n[^`\n]+)*`")
)

// blank replaces every byte but ends of lines by a space.
func blank(s string) string {
	b := []byte(s)
	for i := range b {
		if b[i] != '\n' {
			b[i] = ' '
		}
	}
	return string(b)
}

// slug returns the anchor that forges and Hugo give a heading.
func slug(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		case r == ' ':
			return '-'
		}
		return -1
	}, strings.TrimSpace(title))
}

// plain returns Markdown as text for search and summaries.
func plain(text string) string {
	text = linkText.ReplaceAllString(comment.ReplaceAllString(text, ""), "$1")
	text = strings.NewReplacer("`", "", "**", "", `\|`, "|", `\<`, "<", `\*`, "*", `\_`, "_", `\[`, "[").Replace(marks.ReplaceAllString(text, " "))
	return strings.TrimSpace(spaces.ReplaceAllString(text, " "))
}

// resolve returns the path in the repository to which a page links, and the anchor. ok is false for other sites.
func (p *Page) resolve(dest string) (file, anchor string, ok bool) {
	if strings.Contains(dest, "://") || strings.HasPrefix(dest, "mailto:") {
		return "", "", false
	}
	file, anchor, _ = strings.Cut(dest, "#")
	if file == "" {
		return p.File, anchor, true
	}
	return path.Join(path.Dir(p.File), file), anchor, true
}
