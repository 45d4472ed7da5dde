package ptx

import (
	"fmt"
	"strconv"
	"strings"
)

// Parse parses a module and checks every instruction of it. An error is an *Error.
func Parse(src []byte) (*Module, error) {
	return Link([]Object{{Text: src}}, AtLoad)
}

// clip shortens a message that quotes a long piece of the text.
func clip(err error) error {
	if e, ok := err.(*Error); ok && len(e.Msg) > maxMessage {
		e.Msg = strings.ToValidUTF8(e.Msg[:maxMessage], "") + "…"
	}
	return err
}

// parser is a recursive-descent parser. It parses the directives of modules and the statements of functions; its parts
// parse instructions and declarations, with the same reader.
type parser struct {
	instructionParser
	declarations declarationParser

	all   []*Func // of the current object, declarations too
	funcs int     // in all objects
	depth int     // of braces
	// versioned is set if the current object has begun with .version: other text is not PTX.
	versioned bool
	files     map[int]string // of the current object, by number
}

func newParser(when When, several bool) *parser {
	p := &parser{}
	p.pack.templates = &templates{number: map[template]int{}}
	p.join = &join{mod: newModule(), vars: map[string]*Var{}, several: several}
	p.declarations.reader, p.declarations.initialisers.reader = &p.reader, &p.reader
	p.when, p.opcodes = when, opcodeTable{}
	return p
}

// begin makes the parser ready for an object with the given text.
func (p *parser) begin(text string) {
	p.lex = lexer{src: text, line: 1}
	p.mod, p.registersOfModule = newModule(), nil
	p.all, p.versioned, p.files = nil, false, map[int]string{}
	p.flush = false
	p.advance()
}

func (p *parser) module() error {
	for p.tok.kind != end {
		if err := p.directive(); err != nil {
			return err
		}
	}
	if p.mod.Version == [2]int{} {
		return p.fail("no .version")
	}
	return nil
}

func (p *parser) directive() error {
	head := p.tok.text
	if head == "@" { // @@DWARF
		return p.noise()
	}
	if p.tok.kind != word || head[0] != '.' {
		if p.mod.Version == [2]int{} {
			return p.fail("%q where .version is expected: the image is no PTX text", head)
		}
		return p.fail("%q where a directive is expected", head)
	}
	if first, _, dotted := strings.Cut(head[1:], "."); dotted && first != "version" {
		// Directives may stand without a blank between them.
		p.split()
		head = p.tok.text
	}
	if head != ".version" && p.mod.Version == [2]int{} {
		return p.fail("%q where .version is expected: PTX text begins with it", head)
	}
	switch head {
	case ".version":
		p.versioned = true
		return p.version()
	case ".target":
		return p.target()
	case ".address_size":
		p.advance()
		if p.tok.text != "64" {
			return p.fail(".address_size %s is not supported: addresses have 64 bits", p.tok.text)
		}
		p.advance()
		return nil
	case ".file", ".loc", ".pragma", ".section":
		return p.noise()
	case ".alias":
		return p.alias()
	}
	return p.declaration()
}

// declaration parses a function or variables, with their linkage.
func (p *parser) declaration() error {
	linkage := StaticLinkage
	for p.tok.kind == word && linkages[p.tok.text] != StaticLinkage {
		l := linkages[p.advance().text]
		if linkage != ExternLinkage {
			linkage = l
		}
		p.split()
	}
	switch p.tok.text {
	case ".entry", ".func":
		return p.function(linkage)
	case ".global", ".const", ".shared", ".local", ".tex":
		return p.declarations.variables(linkage)
	case ".reg":
		return p.declarations.registers()
	}
	return p.fail("unknown directive %s", p.tok.text)
}

func (p *parser) version() error {
	p.advance()
	major, minor, _ := strings.Cut(p.tok.text, ".")
	a, err := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	if err != nil || err2 != nil || p.tok.kind != number {
		return p.fail("%q where a version is expected", p.tok.text)
	}
	if a > newestMajor || a == newestMajor && b > newestMinor {
		return &Error{p.tok.line, fmt.Sprintf(".version %d.%d is newer than %d.%d", a, b, newestMajor, newestMinor), ErrUnsupportedPTXVersion}
	}
	p.mod.Version = [2]int{a, b}
	p.advance()
	return nil
}

// targets are the architectures of the newest version. Text for one that is newer than the device is accepted all the
// same: instructions that the device lacks are refused one by one.
var targets = func() map[string]bool {
	known := map[string]bool{}
	for _, n := range strings.Fields("10 11 12 13 20 21 30 32 35 37 50 52 53 60 61 62 70 72 75 80 86 87 88 89 90 90a " +
		"100 100a 100f 101 101a 101f 103 103a 103f 110 110a 110f 120 120a 120f 121 121a 121f") {
		known["sm_"+n] = true
	}
	return known
}()

func (p *parser) target() error {
	p.advance()
	line := p.tok.line
	t, err := p.name()
	if err == nil && !targets[t] {
		return &Error{line, "target " + t + " is not known", ErrNoBinaryForGPU}
	}
	p.mod.Target = strings.Clone(t)
	p.flush = strings.HasPrefix(t, "sm_1") && len(t) == len("sm_1x")
	for err == nil && p.accept(",") {
		var option string
		if option, err = p.name(); option == "texmode_unified" || option == "texmode_independent" || option == "debug" || option == "map_f64_to_f32" {
			continue
		}
	}
	return err
}

// noise skips debugging directives, which may be followed by others in the same line: ".loc file line column,
// function_name label+n, inlined_at file line column", ".file number name, time, size", .pragma up to its semicolon,
// ".section … {…}". Others extend to the end of the line.
func (p *parser) noise() error {
	line := p.tok.line
	switch what := p.advance().text; what {
	case ".loc":
		p.locate(line, p.passNumbers())
		if !p.tok.is(",") {
			return nil
		}
		if p.advance(); p.accept("function_name") {
			p.advance()
			if p.accept("+") {
				p.advance()
			}
			p.accept(",")
		}
		if p.accept("inlined_at") {
			p.passNumbers()
			return nil
		}
	case ".file":
		n := p.passNumbers()
		if name := p.advance(); name.kind == str && len(n) > 0 {
			p.files[n[0]] = strings.Clone(name.text)
		}
		for p.accept(",") {
			p.advance()
		}
		return nil
	case ".pragma":
		for p.tok.kind == str || p.tok.is(",") {
			p.advance()
		}
		return p.expect(";")
	case ".section":
		for p.tok.kind != end && !p.tok.is("{") {
			p.advance()
		}
		for p.tok.kind != end && !p.tok.is("}") {
			p.advance()
		}
		return p.expect("}")
	}
	for p.tok.kind != end && p.tok.line == line {
		if p.accept(";") {
			return nil
		}
		p.advance()
	}
	return nil
}
