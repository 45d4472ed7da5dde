package main

import (
	stdhtml "html"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// html has the references and the anchors of a built page.
type html struct {
	refs []reference
	ids  map[string]bool
}

// reference is an attribute href or src, with the name of its element.
type reference struct{ element, dest string }

var (
	element   = regexp.MustCompile(`<([a-zA-Z][a-zA-Z0-9]*)((?:\s+[^<>=\s]+(?:="[^"]*"|='[^']*'|=[^\s"'>]+)?)*)\s*/?>`)
	attribute = regexp.MustCompile(`\s(href|src|id)=(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))`)
)

func readHTML(text string) *html {
	h := &html{ids: map[string]bool{}}
	for _, e := range element.FindAllStringSubmatch(text, -1) {
		for _, a := range attribute.FindAllStringSubmatch(e[2], -1) {
			value := stdhtml.UnescapeString(a[2] + a[3] + a[4])
			if a[1] == "id" {
				h.ids[value] = true
			} else {
				h.refs = append(h.refs, reference{strings.ToLower(e[1]), value})
			}
		}
	}
	return h
}

// check returns the reason for which a reference of the page in this file leads nowhere, or "".
func (h *html) check(file string, ref reference, pages map[string]*html) string {
	u, err := url.Parse(ref.dest)
	switch {
	case err != nil:
		return err.Error()
	case u.Scheme == "data":
		return ""
	case u.Scheme != "" || u.Host != "":
		if ref.element != "a" {
			return "loaded from another site"
		}
		return ""
	case strings.HasPrefix(u.Path, "/"):
		return "not relative: the site would not work below a prefix"
	}
	target := file
	if u.Path != "" {
		target = filepath.Join(filepath.Dir(file), filepath.FromSlash(u.Path))
	}
	if info, err := os.Stat(target); err != nil || !info.Mode().IsRegular() {
		return "no such file"
	}
	if page := pages[target]; u.Fragment != "" && (page == nil || !page.ids[u.Fragment]) {
		return "no such anchor"
	}
	return ""
}
