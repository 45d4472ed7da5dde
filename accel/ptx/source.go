package ptx

import (
	"cmp"
	"fmt"
	"slices"
)

// source maps the lines of a function's text to source lines, as .loc directives give them, in the order of the text.
type source struct {
	first, last int            // lines of the function's text
	places      []place        // nil: there are none
	files       map[int]string // by the numbers of .file; of the whole text
}

// place is one .loc: from a line of the text on, a line of a file.
type place struct{ from, file, line int32 }

// locate records a .loc directive. The directive's line has been read as far as its numbers.
func (p *parser) locate(at int, numbers []int) {
	if p.fn != nil && len(numbers) >= 2 && numbers[1] >= 0 {
		p.fn.source.places = append(p.fn.source.places, place{int32(at), int32(numbers[0]), int32(numbers[1])})
	}
}

// Source returns the file and line that the text's .loc directives give for a line of the kernel's code, or of a
// function of its module, as "vec.cu:12"; "" if there is none.
func (f *Func) Source(line int) string {
	if f.source.has(line) {
		return f.source.of(line)
	}
	if f.Module == nil {
		return ""
	}
	for _, other := range f.Module.Funcs {
		if other.Object == f.Object && other.source.has(line) {
			return other.source.of(line)
		}
	}
	return ""
}

func (s *source) has(line int) bool { return line >= s.first && line <= s.last }

func (s *source) of(line int) string {
	i, exact := slices.BinarySearchFunc(s.places, int32(line), func(p place, line int32) int { return cmp.Compare(p.from, line) })
	for exact && i+1 < len(s.places) && s.places[i+1].from == int32(line) {
		i++
	}
	if !exact {
		i--
	}
	if i < 0 {
		return ""
	}
	file := s.files[int(s.places[i].file)]
	if file == "" || s.places[i].line == 0 { // the compiler's own code, from no line
		return ""
	}
	return fmt.Sprintf("%s:%d", file, s.places[i].line)
}
