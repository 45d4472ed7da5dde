package image

// Variables are the names of the module variables that PTX text declares: those
// in .global and .const outside of all functions. It knows just so much of PTX,
// since text that it doesn't know is no mistake; whether there really are such
// variables only the driver can say.
func Variables(text []byte) (names []string) {
	s := scanner{text: text}
	for w := s.word(); w != ""; w = s.word() {
		switch w {
		case "{":
			s.skipBlock()
		case ".global", ".const":
			if name := s.declared(); name != "" {
				names = append(names, name)
			}
		}
	}
	return names
}

// scanner cuts PTX text into words: names with their dots, and single other characters.
type scanner struct{ text []byte }

func (s *scanner) word() string {
	s.skipSpace()
	if len(s.text) == 0 {
		return ""
	}
	n := 1
	if partOfName(s.text[0]) {
		for n < len(s.text) && partOfName(s.text[n]) && s.text[n] != '.' {
			n++
		}
	} else if s.text[0] == '"' {
		for n < len(s.text) && s.text[n-1] != '"' || n == 1 && n < len(s.text) {
			n++
		}
	}
	w := string(s.text[:n])
	s.text = s.text[n:]
	return w
}

func partOfName(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '_' || b == '$' || b == '%' || b == '.'
}

// skipSpace skips white space and comments.
func (s *scanner) skipSpace() {
	for len(s.text) > 0 {
		switch b := s.text[0]; {
		case b == ' ' || b >= '\t' && b <= '\r':
			s.text = s.text[1:]
		case b == '/' && len(s.text) > 1 && s.text[1] == '/':
			s.skipTo("\n")
		case b == '/' && len(s.text) > 1 && s.text[1] == '*':
			s.text = s.text[2:]
			s.skipTo("*/")
		default:
			return
		}
	}
}

// skipTo skips to behind the next end.
func (s *scanner) skipTo(end string) {
	for i := 0; i+len(end) <= len(s.text); i++ {
		if string(s.text[i:i+len(end)]) == end {
			s.text = s.text[i+len(end):]
			return
		}
	}
	s.text = nil
}

// skipBlock skips to behind the brace that closes one that was read.
func (s *scanner) skipBlock() {
	for depth := 1; depth > 0; {
		switch s.word() {
		case "{":
			depth++
		case "}":
			depth--
		case "":
			return
		}
	}
}

// declared is the name in a declaration of which the state space was read: the first word that begins with no dot, but
// for the number after .align. References to textures and surfaces have none.
func (s *scanner) declared() string {
	for {
		switch w := s.word(); w {
		case "", ";":
			return ""
		case ".align", ".attribute":
			s.operand()
		case ".texref", ".samplerref", ".surfref":
			return ""
		default:
			if w[0] != '.' {
				if !partOfName(w[0]) {
					return ""
				}
				return w
			}
		}
	}
}

// operand skips a number, or what is in parentheses.
func (s *scanner) operand() {
	if s.word() != "(" {
		return
	}
	for depth := 1; depth > 0; {
		switch s.word() {
		case "(":
			depth++
		case ")":
			depth--
		case "":
			return
		}
	}
}
