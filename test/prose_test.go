package test

import (
	"bufio"
	"cmp"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// vague are the words by which a sentence leaves its subject or object without a name, and the verbs that treat components as
// people: docs/style.md has what to write instead.
var vague = regexp.MustCompile(`(?i)\b(who|whoever|whom|nobody|somebody|anybody|everybody|no one|someone|anyone|everyone|` +
	`what (is|are|was|were|does|do|did|it|they|has|have|had|can|could|must|may|comes|goes|belongs|needs)|` +
	`says?|said|tells?|told|knows?|known|knew|asks?|asked|wants?|wanted|learns?|hears?|heard)\b`)

// proseAllowed is how many such words each file still has, a file and a number on each line. Other files may have none.
const proseAllowed = "prose.txt"

// TestProse fails where a comment or a page gets more vague words than it had. With PROSE_UPDATE=1 it writes down how many there
// are now, which has to be fewer.
func TestProse(t *testing.T) {
	allowed := readCounts(t)
	found := map[string]int{}
	for _, file := range sources(t) {
		text, ok := prose(t, file)
		if !ok {
			continue
		}
		all := vague.FindAllString(text, -1)
		if found[file] = len(all); len(all) > allowed[file] && os.Getenv("PROSE_UPDATE") == "" {
			t.Errorf("%s: %d vague words, at most %d are allowed: %s; name the subject, see docs/style.md",
				file, len(all), allowed[file], strings.Join(distinct(all), ", "))
		}
	}
	if os.Getenv("PROSE_UPDATE") != "" {
		writeCounts(t, found, allowed)
	}
}

// sources are the files of the tree, by their paths within it.
func sources(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && (path == "../build" || path == "../.git") {
			return filepath.SkipDir
		}
		if err == nil && e.Type().IsRegular() {
			files = append(files, strings.TrimPrefix(path, "../"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func distinct(words []string) []string {
	set := map[string]bool{}
	for _, w := range words {
		set[strings.ToLower(w)] = true
	}
	return slices.Sorted(maps.Keys(set))
}

func readCounts(t *testing.T) map[string]int {
	t.Helper()
	f, err := os.Open(proseAllowed)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	counts := map[string]int{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		file, number, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.Atoi(number)
		if err != nil {
			t.Fatalf("%s: %q: %v", proseAllowed, lines.Text(), err)
		}
		counts[file] = n
	}
	return counts
}

func writeCounts(t *testing.T, found, allowed map[string]int) {
	t.Helper()
	var b strings.Builder
	for _, file := range slices.SortedFunc(maps.Keys(found), cmp.Compare[string]) {
		if n, was := found[file], allowed[file]; n > was && len(allowed) > 0 {
			t.Errorf("%s: %d vague words, more than the %d before", file, n, was)
		} else if n > 0 {
			fmt.Fprintf(&b, "%s %d\n", file, n)
		}
	}
	if err := os.WriteFile(proseAllowed, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// prose returns the text of a file that is read as English: a page without code, or the comments of a program. It reports false
// for generated files, files of other kinds, measurements, and the pages that quote such words.
func prose(t *testing.T, file string) (text string, ok bool) {
	t.Helper()
	kind := filepath.Ext(file)
	switch {
	case strings.HasPrefix(filepath.Base(file), "zz_"), strings.Contains(file, "testdata/"), strings.HasPrefix(file, "docs/results/"):
		return "", false
	case file == "docs/style.md", file == "docs/coverage.md", file == "guest/include/cuda.h":
		return "", false
	case kind != ".md" && kind != ".go" && kind != ".c" && kind != ".h":
		return "", false
	}
	data, err := os.ReadFile(filepath.Join("..", file))
	if err != nil {
		t.Fatal(err)
	}
	switch kind {
	case ".md":
		text = page(string(data))
	case ".go":
		text = goComments(data)
	default:
		text = strings.Join(cComment.FindAllString(string(data), -1), "\n")
	}
	return quoted.ReplaceAllString(text, ""), true
}

var (
	quoted   = regexp.MustCompile("`[^`]*`|\"[^\"\n]*\"|“[^”]*”")
	fenced   = regexp.MustCompile("(?ms)^```.*?^```$")
	indented = regexp.MustCompile(`(?m)^(    |\t).*$`)
	cComment = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
)

func page(text string) string {
	return indented.ReplaceAllString(fenced.ReplaceAllString(text, ""), "")
}

func goComments(src []byte) string {
	var b strings.Builder
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile("", -1, len(src)), src, nil, scanner.ScanComments)
	for {
		_, tok, lit := s.Scan()
		if tok == token.EOF {
			return b.String()
		}
		if tok == token.COMMENT && !strings.HasPrefix(lit, "//go:") {
			b.WriteString(lit + "\n")
		}
	}
}

func TestProseFindsText(t *testing.T) {
	if got := page("who `who`\n\n    who\n\n```\nwho\n```\nnobody\n"); len(vague.FindAllString(quoted.ReplaceAllString(got, ""), -1)) != 2 {
		t.Errorf("the page's text is %q", got)
	}
	src := "package p // who\n\nvar s = \"nobody\"\n\n//go:build who\n/* what is */\n"
	if got := vague.FindAllString(goComments([]byte(src)), -1); !slices.Equal(got, []string{"who", "what is"}) {
		t.Errorf("the comments have %q", got)
	}
}
