package ptx

// scope is a pair of braces within a function: registers, variables and labels
// declared in it hide those outside.
type scope struct {
	outer  *scope
	ranges map[string]regRange
	vars   map[string]*Var
	// The others are nil until there is something in them.
	regs   map[string]int32
	labels map[string]int
	// vectors are registers with .v2 or .v4, and branches the lists of .branchtargets.
	vectors  map[string]regRange
	branches map[string][]string
	// prototypes are of indirect calls, by label.
	prototypes map[string]*Func
	// pending are branches to labels that are not defined in this scope so far.
	pending []fixup
}

// regRange is a declaration ".reg .t %r<n>".
type regRange struct{ first, count int32 }

// fixup is a branch that waits for its label.
type fixup struct {
	target int // of the code
	label  string
	line   int
}

func newScope(outer *scope) *scope {
	return &scope{outer: outer, ranges: map[string]regRange{}, vars: map[string]*Var{}}
}

// register returns the number of a register by its name.
func (s *scope) register(name string) (int32, bool) {
	cut := len(name)
	for cut > 0 && digit(name[cut-1]) {
		cut--
	}
	// A number of a range has no zeroes before it, and seven digits at most.
	n := int32(0)
	for i := cut; i < min(cut+7, len(name)); i++ {
		n = 10*n + int32(name[i]-'0')
	}
	numbered := cut < len(name) && len(name)-cut <= 7 && (name[cut] != '0' || cut+1 == len(name))
	for ; s != nil; s = s.outer {
		if numbered {
			if g, ok := s.ranges[name[:cut]]; ok && n < g.count {
				if r, ok := s.regs[name]; ok {
					return r, true
				}
				return g.first + n, true
			}
		}
		if r, ok := s.regs[name]; ok {
			return r, true
		}
	}
	return 0, false
}

func (s *scope) setRegister(name string, r int32) {
	if s.regs == nil {
		s.regs = map[string]int32{}
	}
	s.regs[name] = r
}

func (s *scope) setLabel(name string, at int) {
	if s.labels == nil {
		s.labels = map[string]int{}
	}
	s.labels[name] = at
}

func (s *scope) variable(name string) *Var {
	for ; s != nil; s = s.outer {
		if v, ok := s.vars[name]; ok {
			return v
		}
	}
	return nil
}
